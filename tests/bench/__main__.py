"""Run the benches: `python -m tests.bench` fills a control plane of its own and compares, in turns.

Figures are those of whole processes, byte code compiled on both sides; ratios of medians count, not seconds. It exits
with 1 if a bound of the project is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))


@dataclass(frozen=True)
class Contest:
    """asyncop against its floor."""

    name: str
    program: str
    floor: str
    cpu_ratio: float
    """At most so many times the floor's CPU."""
    rss_mb: float
    """At most so much peak memory."""


CONTESTS = (
    Contest("typed", "typed_pods.py", "typed", 3.0, 140),
    Contest("untyped", "untyped_pods.py", "raw", 3.5, 280),
)


def measure(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run one process to its report."""
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    reports = [line for line in done.stdout.splitlines() if line.startswith("USAGE ")]
    if not reports:
        sys.exit(f"{' '.join(command)} ended with {done.returncode} and no report:\n{done.stdout}\n{done.stderr}")
    figures: dict[str, float] = json.loads(reports[-1].removeprefix("USAGE "))
    return figures


def compete(contest: Contest, environment: dict[str, str], turns: int) -> bool:
    """Run both in turns; prints medians and says whether the bounds hold."""
    asyncop = [
        *(sys.executable, "-m", "asyncop", "run", str(HERE / contest.program), "-A", "--no-leader-elect", "-q"),
        *("--health-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"),
    ]
    floor = [sys.executable, str(HERE / "floor.py"), contest.floor]
    ours, floors = [], []
    for _ in range(turns):
        floors.append(measure(floor, environment))
        ours.append(measure(asyncop, environment))

    def median(figures: list[dict[str, float]], name: str) -> float:
        return statistics.median(figure[name] for figure in figures)

    ratio = median(ours, "cpu") / median(floors, "cpu")
    rss = median(ours, "rss_mb")
    print(
        f"{contest.name}: asyncop {median(ours, 'cpu'):.2f} CPU s, {rss:.0f} MB; "
        f"floor {median(floors, 'cpu'):.2f} CPU s, {median(floors, 'rss_mb'):.0f} MB; "
        f"ratio {ratio:.2f} (bound {contest.cpu_ratio}), memory bound {contest.rss_mb:.0f} MB",
        flush=True,
    )
    return ratio <= contest.cpu_ratio and rss <= contest.rss_mb


def main() -> int:
    """Fill, compile, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=20000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kubeconfig", type=Path, help="a control plane that is filled already, instead of a new one")
    arguments = parser.parse_args()
    compileall.compile_dir(ROOT / "asyncop", quiet=1)
    compileall.compile_dir(HERE, quiet=1)
    if arguments.kubeconfig:
        return _compare(arguments.kubeconfig, arguments.pods, arguments.turns)
    from load import fill

    from tests.testbed.cluster import Cluster

    with tempfile.TemporaryDirectory(prefix="asyncop-bench-") as folder:
        cluster = Cluster(Path(folder) / "plane")
        try:
            cluster.up(nodes=0)
            os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
            print(f"filling {arguments.namespaces} namespaces with {arguments.pods} Pods …", flush=True)
            asyncio.run(fill(arguments.namespaces, arguments.pods))
            return _compare(cluster.kubeconfig, arguments.pods, arguments.turns)
        finally:
            cluster.down()


def _compare(kubeconfig: Path, pods: int, turns: int) -> int:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "BENCH_PODS": str(pods)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    results = [compete(contest, environment, turns) for contest in CONTESTS]
    print("all bounds hold" if all(results) else "a bound is broken", flush=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
