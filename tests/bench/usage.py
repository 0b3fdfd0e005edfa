"""What this process has used so far, as one line that the bench reads."""

import json
import resource


def report(count: int) -> None:
    """Print CPU seconds (user and system) and peak memory of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"count": count, "cpu": used.ru_utime + used.ru_stime, "rss_mb": used.ru_maxrss / 1024}
    print("USAGE " + json.dumps(figures), flush=True)
