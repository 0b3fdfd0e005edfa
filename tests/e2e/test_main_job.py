"""The main job as a user has it: the image that `make image` builds, installed by the chart, brings a Pod back."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.lost_node import STARTED, Watch, force_deletions, log_entries, lose_node1, reasons, uid
from tests.testbed.cluster import Cluster
from tests.testbed.errors import MissingToolError
from tests.testbed.fixtures import give_up
from tests.testbed.images import PAUSE
from tests.testbed.installation import Installation, build_image
from tests.testbed.node import Node
from tests.testbed.processes import wait_until
from tests.testbed.workload import Workload, container_id, is_ready

RECONCILED = 12.0
"""Seconds until a kubelet whose link is back has heard of its Pods and reported them: its connections are dead, too."""


@pytest.fixture(scope="module")
def asyncop(cluster: Cluster) -> Iterator[Installation]:
    """Installed on node2, which survives all of this; one release for every test here."""
    try:
        cluster.load_image(build_image())
    except MissingToolError as error:
        give_up(str(error))
    installation = Installation(cluster)
    installation.install(node="node2")
    yield installation
    installation.uninstall()


class Bystander:
    """A Pod on node1 that tolerates whatever happens to it, and so is nobody's to delete."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._api, self._pods = cluster.api, f"/api/v1/namespaces/{namespace}/pods"
        spec = {
            "nodeName": "node1",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}],
        }
        self._api.call("POST", self._pods, {"metadata": {"name": "bystander"}, "spec": spec})

    def now(self) -> dict[str, Any]:
        return self._api.call("GET", f"{self._pods}/bystander")

    @property
    def is_ready(self) -> bool:
        return is_ready(self.now())


@pytest.fixture
def bystander(cluster: Cluster, namespace: str) -> Bystander:
    made = Bystander(cluster, namespace)
    assert wait_until(lambda: made.is_ready, 5 * STARTED)
    return made


@pytest.mark.timeout(400)  # the sum of its limits; it takes 45 s
@pytest.mark.parametrize("lose", [Node.cut, Node.kill])
def test_pod_of_a_lost_node_comes_back_and_the_node_returns_without_it(
    cluster: Cluster,
    namespace: str,
    asyncop: Installation,
    workload: Workload,
    bystander: Bystander,
    lose: Callable[[Node], None],
) -> None:
    node, operator, witness = cluster.node("node1"), asyncop.pod(), bystander.now()
    deleted_before = force_deletions(asyncop.metrics())
    watch = Watch()

    lost = lose_node1(cluster, workload, lose, watch)

    watch.until("it is told by an Event", lambda: "ForceDeleted" in reasons(cluster, namespace, lost), 1)
    said = [entry["msg"] for entry in log_entries(asyncop.log()) if entry.get("uid") == uid(lost)]
    assert said == ["Force-deleted Pod"]
    assert force_deletions(asyncop.metrics()) == deleted_before + 1
    # On a node that was cut off the old process lives on, and only its kubelet can end it.
    assert (container_id(lost) in node.running_containers()) is (lose is Node.cut)

    remaining = {uid(pod) for pod in workload.pods()}
    node.heal()
    cluster.wait_nodes_ready()
    watch.note("node1 is back and Ready")
    watch.until("the old container has ended", lambda: container_id(lost) not in node.running_containers(), RECONCILED)
    watch.until("the node's other Pod is Ready", lambda: bystander.is_ready, RECONCILED)
    assert {uid(pod) for pod in workload.pods()} == remaining
    assert len(remaining) == 2
    assert uid(bystander.now()) == uid(witness)
    assert (container_id(bystander.now()) == container_id(witness)) is (lose is Node.cut)

    assert uid(asyncop.pod()) == uid(operator)
    assert asyncop.pod()["status"]["containerStatuses"][0]["restartCount"] == 0
    assert force_deletions(asyncop.metrics()) == deleted_before + 1
