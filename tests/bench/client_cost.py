"""What loading a kubeconfig and making a client costs, beside a plain `import kubernetes_asyncio`.

    python -m tests.bench.client_cost

Prints the medians of several turns and their ratios. Each turn is a process of its own; byte code is compiled before
the first, in a place of the bench's own, whatever the environment says about writing it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

TURNS = 7
ROOT = Path(__file__).parents[2]

PLAIN = "import kubernetes_asyncio"
CLIENT = """
import asyncio
from asyncop.client import connect
async def main():
    async with connect(KUBECONFIG):
        pass
asyncio.run(main())
"""
_REPORT = """
import json, time
with open("/proc/self/status") as _status:  # getrusage would count what the parent had when it forked
    _peak = next(int(line.split()[1]) for line in _status if line.startswith("VmHWM"))
print(json.dumps([time.process_time(), _peak * 1024]))
"""


class Cost(NamedTuple):
    """Of one whole process."""

    cpu: float
    rss_bytes: int


def kubeconfig_in(folder: Path) -> Path:
    """A kubeconfig of the usual kind."""
    path = folder / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(config))
    return path


def measure(program: str, kubeconfig: Path) -> Cost:
    """Run a program in a process of its own, with byte code already compiled."""
    cache = kubeconfig.parent / "bytecode"
    is_warm = cache.exists()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)}
    command = [sys.executable, "-c", f"KUBECONFIG = {str(kubeconfig)!r}\n{program}\n{_REPORT}"]
    if not is_warm:
        for each in (PLAIN, CLIENT):
            warm_up = [sys.executable, "-c", f"KUBECONFIG = {str(kubeconfig)!r}\n{each}"]
            subprocess.run(warm_up, env=environment, check=True, timeout=120)
    result = subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True)
    return Cost(*json.loads(result.stdout))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="asyncop-bench-") as folder:
        kubeconfig = kubeconfig_in(Path(folder))
        turns = [(measure(PLAIN, kubeconfig), measure(CLIENT, kubeconfig)) for _ in range(TURNS)]
    plain, client = ([turn[side] for turn in turns] for side in (0, 1))
    rows = {"import kubernetes_asyncio": plain, "kubeconfig and client": client}
    for name, costs in rows.items():
        cpu, rss = statistics.median(c.cpu for c in costs), statistics.median(c.rss_bytes for c in costs)
        print(f"{name:28} {cpu:6.3f} CPU s {rss / 1e6:7.1f} MB")
    ratios = [
        statistics.median(getattr(c, what) for c in client) / statistics.median(getattr(c, what) for c in plain)
        for what in Cost._fields
    ]
    print(f"ratio                        {ratios[0]:6.2f}       {ratios[1]:7.2f}")


if __name__ == "__main__":
    main()
