"""The real cluster of two nodes that the end-to-end tests share, whole again after each of them."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import fresh_namespace, run_testbed
from tests.testbed.processes import wait_until
from tests.testbed.workload import SPREAD_OVER_LIVING_NODES, Workload


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane with controllers and scheduler, and the nodes `node1` and `node2`, shared by the whole run."""
    yield from run_testbed("cluster", nodes=2)


@pytest.fixture(autouse=True)
def _whole_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did to the nodes is undone, and seen by the cluster as undone, before the next one starts."""
    bed = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    yield
    if bed is not None:
        bed.heal()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a fresh namespace in which Pods can be created; deleted afterwards, which takes its own time."""
    for name in fresh_namespace(cluster):
        assert wait_until(partial(_has_service_account, cluster, name), timeout=30)
        yield name


@pytest.fixture
def workload(cluster: Cluster, namespace: str) -> Workload:
    """Two running Pods of a StatefulSet, one a node; should one node die, its Pod may join the other."""
    made = Workload(cluster, namespace)
    made.create(SPREAD_OVER_LIVING_NODES)
    assert wait_until(lambda: made.running_on() == {"node1", "node2"}, timeout=60)
    return made


def _has_service_account(cluster: Cluster, namespace: str) -> bool:
    """Pods are refused until the controller manager has made it."""
    try:
        cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
