"""The main job done by `asyncop run` as a process outside of the cluster, with a kubeconfig."""

from pathlib import Path

import pytest

from tests.e2e.lost_node import Watch, force_deletions, lose_node1, reasons
from tests.e2e.outside import running_outside
from tests.testbed.cluster import Cluster
from tests.testbed.installation import SHORT_WINDOWS
from tests.testbed.node import Node
from tests.testbed.workload import Workload

OPTIONS = {"mode": "delete", **SHORT_WINDOWS}
ARGUMENTS = [
    *("-A", "-b", "stuckPods", "--no-leader-elect"),
    *(part for key, value in OPTIONS.items() for part in ("--set", f"controllers.stuckPods.{key}={value}")),
]


@pytest.mark.timeout(300)  # the sum of its limits; it takes half a minute
def test_pod_of_a_lost_node_comes_back_and_the_process_stops_cleanly(
    cluster: Cluster, namespace: str, workload: Workload, tmp_path: Path
) -> None:
    watch = Watch()

    with running_outside(cluster.kubeconfig, tmp_path / "asyncop.log", *ARGUMENTS) as asyncop:
        watch.until("asyncop is ready", lambda: asyncop.is_ready, 2)
        lost = lose_node1(cluster, workload, Node.cut, watch)
        watch.until("it is told by an Event", lambda: "ForceDeleted" in reasons(cluster, namespace, lost), 1)
        assert force_deletions(asyncop.metrics()) == 1

        assert asyncop.terminate() == 0
        watch.note("asyncop has ended")

    entries = asyncop.log()
    assert [entry["name"] for entry in entries if entry["msg"] == "Force-deleted Pod"] == [lost["metadata"]["name"]]
    assert not [entry for entry in entries if entry["level"] == "error" or "stacktrace" in entry]
