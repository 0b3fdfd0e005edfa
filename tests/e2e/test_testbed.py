"""The test bed itself: its nodes fail the way machines fail, and no run leaves anything behind for the next."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.cluster import Cluster, clear_ruins
from tests.testbed.errors import InUseError, TestbedError
from tests.testbed.images import single_binary_image
from tests.testbed.network import network_of
from tests.testbed.processes import Identity, Process, marked, wait_until
from tests.testbed.state import default_root
from tests.testbed.workload import NEVER_TOGETHER, Workload, is_terminating, is_unreachable

ROOT = Path(__file__).resolve().parents[2]
WAIT = 60.0


def _grace_is_over(pod: dict[str, Any]) -> bool:
    """Whether a kubelet that is alive would long have confirmed the end; the machine's clock is the server's."""
    return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]) + timedelta(seconds=1) < datetime.now(UTC)


@pytest.fixture
def workload(cluster: Cluster, namespace: str) -> Workload:
    made = Workload(cluster, namespace)
    made.create(NEVER_TOGETHER)
    assert wait_until(lambda: made.running_on() == {"node1", "node2"}, WAIT)
    return made


def _cut(cluster: Cluster) -> None:
    cluster.node("node1").cut()


def _kill(cluster: Cluster) -> None:
    cluster.node("node1").kill()


@pytest.mark.parametrize("fail", [_cut, _kill])
def test_pod_of_a_lost_node_hangs_in_termination_until_the_node_is_back(
    cluster: Cluster, workload: Workload, fail: Callable[[Cluster], None]
) -> None:
    lost, survivor = workload.pod_on("node1"), workload.pod_on("node2")

    fail(cluster)

    assert wait_until(lambda: is_unreachable(cluster, "node1"), WAIT)
    assert wait_until(lambda: is_terminating(workload.pod_on("node1")), WAIT)
    assert wait_until(lambda: _grace_is_over(workload.pod_on("node1")), WAIT)
    assert workload.pod_on("node1")["metadata"]["uid"] == lost["metadata"]["uid"]

    cluster.heal()

    assert wait_until(lambda: workload.running_on() == {"node1", "node2"}, WAIT)
    assert workload.pod_on("node1")["metadata"]["uid"] != lost["metadata"]["uid"]
    assert workload.pod_on("node2")["metadata"]["uid"] == survivor["metadata"]["uid"]


def test_image_loaded_while_a_node_was_off_is_there_when_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.node("node1")
    archive = tmp_path / "late.tar"
    archive.write_bytes(single_binary_image("localhost/testbed/late:1", Path(sys.executable)))

    node.kill()
    cluster.load_image(archive)
    cluster.heal()

    assert "localhost/testbed/late:1" in node.image_tags()


def test_heal_undoes_what_was_done_to_the_node_objects(cluster: Cluster) -> None:
    cluster.kubectl("delete", "node", "node1")
    cluster.kubectl("cordon", "node2")
    cluster.kubectl("taint", "node", "node2", "node.kubernetes.io/out-of-service=:NoExecute")

    cluster.heal()

    specs = {item["metadata"]["name"]: item["spec"] for item in cluster.api.call("GET", "/api/v1/nodes")["items"]}
    assert set(specs) == {"node1", "node2"}
    assert not any("taints" in spec or "unschedulable" in spec for spec in specs.values())


def test_bed_of_a_living_run_is_refused_and_goes_on(cluster: Cluster) -> None:
    with pytest.raises(InUseError, match=f"process {os.getpid()}"):
        Cluster(cluster.path).up()

    clear_ruins(cluster.path.parent)

    assert cluster.kubectl("get", "nodes", "-o", "name").split() == ["node/node1", "node/node2"]


def test_what_a_killed_run_left_is_gone_after_the_next_up() -> None:
    path = default_root() / f"ruin-{os.getpid()}"
    command = [sys.executable, "-m", "tests.testbed", "up", "--nodes", "1", "--dir", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        kubelet = Process(path, "kubelet", "nodes/node1")
        assert wait_until(lambda: kubelet.is_running, WAIT)
        run.send_signal(signal.SIGKILL)
    left = list(marked(path))
    network = network_of(path)
    assert network is not None
    assert len(left) > 5

    bed = Cluster(path)
    try:
        bed.up()
        assert not any(identity.is_alive for identity in left)
        assert network_of(path) is None
        assert not Path(f"/sys/class/net/{network.bridge}").exists()
        assert bed.kubectl("get", "nodes") == ""
    finally:
        bed.down()

    assert not path.exists()
    assert not list(marked(path))


@pytest.fixture
def stranger() -> Iterator[Identity]:
    """A process that has nothing to do with any test bed."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        identity = Identity.of(process.pid)
        assert identity is not None
        yield identity
        process.kill()


def test_process_that_reuses_a_recorded_pid_is_never_hit(tmp_path: Path, stranger: Identity) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "etcd.json").write_text(json.dumps({"pid": stranger.pid, "started": stranger.started - 1}))
    recorded = Process(tmp_path, "etcd")

    assert not recorded.is_running
    recorded.stop()

    assert stranger.is_alive


def test_recorded_process_is_stopped(tmp_path: Path, stranger: Identity) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "etcd.json").write_text(json.dumps({"pid": stranger.pid, "started": stranger.started}))

    Process(tmp_path, "etcd").stop()

    assert not stranger.is_alive


def test_foreign_directory_is_never_cleared(tmp_path: Path) -> None:
    precious = tmp_path / "foreign" / "precious"
    precious.parent.mkdir()
    precious.write_text("do not touch")

    with pytest.raises(TestbedError, match="is no test bed"):
        Cluster(precious.parent).up()
    Cluster(precious.parent).down()
    clear_ruins(tmp_path)

    assert precious.read_text() == "do not touch"
