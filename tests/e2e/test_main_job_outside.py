"""The main job done by `asyncop run` as a process outside of the cluster, with a kubeconfig."""

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lost_node import Watch, force_deletions, log_entries, lose_node1, reasons
from tests.testbed.cluster import Cluster
from tests.testbed.installation import SHORT_WINDOWS
from tests.testbed.node import Node
from tests.testbed.processes import tool_environment
from tests.testbed.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
ENDED = 5.0
"""Seconds that a clean stop may take: nothing runs then but what posts Events and closes connections."""


class Outside:
    """The process, by its log and its two ports."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def log(self) -> list[dict[str, Any]]:
        return log_entries(self._log.read_text())

    @property
    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return self._get("health probes", "/readyz") == "ok\n"

    def metrics(self) -> str:
        return self._get("metrics", "/metrics")

    def _get(self, purpose: str, path: str) -> str:
        """Empty while it doesn't listen, or says anything but 200."""
        served = [entry["address"] for entry in self.log() if entry["msg"] == f"Serving {purpose}"]
        if not served:
            return ""
        try:
            with urllib.request.urlopen(f"http://{served[0]}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            error.close()
            return ""

    def terminate(self) -> int:
        """Ask it to end; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=5 * ENDED)


@contextmanager
def running_outside(kubeconfig: Path, log: Path) -> Iterator[Outside]:
    """Start it with short windows; kill it in the end if it is still there."""
    options = {"mode": "delete", **SHORT_WINDOWS}
    argv = [
        *(sys.executable, "-m", "asyncop", "run", "-A", "-b", "stuckPods", "--no-leader-elect"),
        *(part for key, value in options.items() for part in ("--set", f"controllers.stuckPods.{key}={value}")),
        *("--kubeconfig", str(kubeconfig), "--log-format", "json"),
        *("--health-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"),
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=ROOT, env=tool_environment(), stderr=stderr)
    try:
        yield Outside(process, log)
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(300)  # the sum of its limits; it takes half a minute
def test_pod_of_a_lost_node_comes_back_and_the_process_stops_cleanly(
    cluster: Cluster, namespace: str, workload: Workload, tmp_path: Path
) -> None:
    watch = Watch()

    with running_outside(cluster.kubeconfig, tmp_path / "asyncop.log") as asyncop:
        watch.until("asyncop is ready", lambda: asyncop.is_ready, 2)
        lost = lose_node1(cluster, workload, Node.cut, watch)
        watch.until("it is told by an Event", lambda: "ForceDeleted" in reasons(cluster, namespace, lost), 1)
        assert force_deletions(asyncop.metrics()) == 1

        assert asyncop.terminate() == 0
        watch.note("asyncop has ended")

    entries = asyncop.log()
    assert [entry["name"] for entry in entries if entry["msg"] == "Force-deleted Pod"] == [lost["metadata"]["name"]]
    assert not [entry for entry in entries if entry["level"] == "error" or "stacktrace" in entry]
