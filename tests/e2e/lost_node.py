"""The story that every test of the main job tells: node1 is lost, and its Pod must come back on node2 by itself."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.testbed.cluster import Cluster
from tests.testbed.installation import events_of
from tests.testbed.node import Node
from tests.testbed.processes import wait_until
from tests.testbed.workload import TOLERATION, Workload, is_ready, is_terminating, is_unreachable

NOTICED = 12.0
"""Seconds until the test bed's node controller gives a node up."""
PROVEN = 13.0
"""Seconds from a Pod's Terminating to its deletion: its grace, ours, the Lease's window."""
STARTED = 3.0
"""Seconds until a Pod runs and is Ready."""


class Watch:
    """Waits for one thing after the other, five times as long as each should take, and prints when it came."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def until(self, what: str, condition: Callable[[], bool], figure: float) -> None:
        assert wait_until(condition, 5 * figure, interval=0.1), f"not within 5 x {figure:g} s: {what}"
        self.note(what)

    def note(self, what: str) -> None:
        print(f"{time.monotonic() - self._start:6.1f} s  {what}")


class PodOfNode1:
    """The Pod of the workload that runs on node1, and whoever succeeds it under its name."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.first = workload.pod_on("node1")
        self.name: str = self.first["metadata"]["name"]

    @property
    def is_lost(self) -> bool:
        """It has been told to go, or is gone."""
        pod = self.now()
        return pod is None or uid(pod) != uid(self.first) or is_terminating(pod)

    @property
    def is_back(self) -> bool:
        """Its successor is Running and Ready."""
        pod = self.now()
        return (
            pod is not None
            and uid(pod) != uid(self.first)
            and pod["status"]["phase"] == "Running"
            and is_ready(pod)
            and not is_terminating(pod)
        )

    def now(self) -> dict[str, Any] | None:
        return self._workload.pod(self.name)


def lose_node1(cluster: Cluster, workload: Workload, lose: Callable[[Node], None], watch: Watch) -> dict[str, Any]:
    """Lose it; when its Pod is Running and Ready on node2 and the survivor is untouched, return the old Pod."""
    pod, survivor = PodOfNode1(workload), workload.pod_on("node2")

    lose(cluster.node("node1"))
    watch.note(f"node1 is lost ({lose.__name__})")
    watch.until("node1 is tainted", lambda: is_unreachable(cluster, "node1"), NOTICED)
    watch.until(f"{pod.name} is Terminating", lambda: pod.is_lost, TOLERATION)
    hanging = pod.now()
    assert hanging is not None
    assert uid(hanging) == uid(pod.first), "it was gone before there could be evidence"
    watch.until(f"{pod.name} is Running and Ready again", lambda: pod.is_back, PROVEN + STARTED)

    replacement = pod.now()
    assert replacement is not None
    assert replacement["spec"]["nodeName"] == "node2"
    assert {uid(item) for item in workload.pods()} == {uid(survivor), uid(replacement)}
    return pod.first


def uid(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def reasons(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> list[str]:
    """What asyncop has told about this very Pod, in the order it told it."""
    return [event["reason"] for event in events_of(cluster, namespace) if event["regarding"]["uid"] == uid(pod)]


def force_deletions(metrics: str) -> float:
    """The count of them in what the metrics port says."""
    found = re.search(r'^asyncop_stuck_pods_decisions_total\{reason="ForceDeleted"\} (\S+)$', metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


def log_entries(text: str) -> list[dict[str, Any]]:
    """The whole lines of a log in JSON; one that is no JSON is an error."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
