"""The chart's two Pods: their leader dies, is cut off with its node, or the API server is away for a minute."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.lost_node import Watch
from tests.e2e.trail import Trail
from tests.e2e.twins import Twins, name_of, restarts
from tests.testbed.cluster import Cluster
from tests.testbed.errors import MissingToolError
from tests.testbed.fixtures import give_up
from tests.testbed.installation import build_image
from tests.testbed.processes import wait_until
from tests.testbed.workload import container_id, is_ready

LEASE, DEADLINE, RETRY = 6.0, 4.0, 1.0
"""The Lease's times in seconds, shorter than the defaults so that nobody waits."""
SUCCEEDED = 2 * RETRY + 5.0
"""Seconds from the end of a lease until its successor must have written."""
OUTAGE = 60.0
RESTARTED = 5.0
"""Seconds until the kubelet has started a container again and its Pod is Ready."""


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Twins]:
    try:
        cluster.load_image(build_image())
    except MissingToolError as error:
        give_up(str(error))
    twins = Twins(cluster, LEASE, DEADLINE, RETRY)
    twins.install()
    yield twins
    twins.uninstall()


@pytest.fixture
def trail(installed: Twins) -> Trail:
    return installed.trail()


@pytest.fixture
def twins(installed: Twins, trail: Trail) -> Iterator[Twins]:
    """Both Ready, a node each, and the leader at work. Whatever is done to them, they keep the law."""
    assert wait_until(lambda: all(is_ready(pod) for pod in installed.pods()), 5 * RESTARTED)
    assert {pod["spec"]["nodeName"] for pod in installed.pods()} == {"node1", "node2"}
    assert wait_until(lambda: bool(trail.renewals(name_of(installed.leader()))), 5 * SUCCEEDED)
    assert wait_until(lambda: bool(trail.work(name_of(installed.leader()))), 5 * SUCCEEDED)
    yield installed
    trail.check(LEASE)


def test_a_killed_leader_is_succeeded_once_its_lease_has_ended(twins: Twins, trail: Trail) -> None:
    old = twins.leader()
    watch, killed = Watch(), time.time()

    twins.kill(old)

    def successor() -> list[str]:  # the other, or the same Pod's new process: each has to wait for the lease's end
        return [pod for pod in map(name_of, twins.pods()) if trail.work(pod, killed + DEADLINE)]

    watch.until("somebody writes", lambda: bool(successor()), LEASE + SUCCEEDED)
    (new,) = successor()
    first = trail.work(new, killed + DEADLINE)[0]
    last = [claim for claim in trail.renewals(name_of(old)) if claim.received < killed][-1]
    late = first.answered - (last.answered + LEASE)
    watch.note(f"its first write came {late:+.1f} s after the lease's end")
    assert late <= SUCCEEDED
    watch.until("both are Ready", lambda: all(is_ready(pod) for pod in twins.pods()), RESTARTED)
    assert sorted(map(restarts, twins.pods())) == [0, 1]


def test_a_leader_whose_node_is_cut_off_has_stopped_before_it_is_succeeded_and_never_writes_late(
    twins: Twins, trail: Trail
) -> None:
    old, node = twins.leader(), twins.node_of(twins.leader())
    new, before = name_of(twins.other(old)), restarts(old)
    watch = Watch()

    node.cut()

    watch.until(f"{new} writes", lambda: bool(trail.work(new)), LEASE + SUCCEEDED)
    late = trail.work(new)[0].answered - (trail.renewals(name_of(old))[-1].answered + LEASE)
    watch.note(f"its first write came {late:+.1f} s after the lease's end")
    assert late <= SUCCEEDED

    node.heal()
    watch.until("the old leader stands by", lambda: twins.has_said(old, "No longer leader"), RETRY + 2)
    # Was something of an old connection left in its kernel, it would come now, after some seconds.
    watch.until("nothing is on its way", lambda: node.unsent_bytes(container_id(old)) == 0, LEASE + SUCCEEDED)
    trail.check(LEASE)
    assert restarts(twins.other(twins.leader())) == before


@pytest.mark.timeout(300)  # a minute of it is the outage
def test_while_the_api_server_is_away_nobody_restarts_and_both_stay_ready(
    cluster: Cluster, twins: Twins, trail: Trail
) -> None:
    plane, pods = cluster.control_plane, twins.pods()
    before = {name_of(pod): (container_id(pod), restarts(pod)) for pod in pods}
    watch = Watch()

    plane.kill()
    watch.note("the API server is away")
    ends = time.monotonic() + OUTAGE
    while time.monotonic() < ends:
        assert [name_of(pod) for pod in pods if not twins.answers_ready(pod)] == []
        time.sleep(0.5)
    plane.start_again()
    back = time.time()
    watch.note("it is back")

    def work() -> list[float]:
        return [write.answered for pod in pods for write in trail.work(name_of(pod), back)]

    watch.until("somebody writes", lambda: bool(work()), SUCCEEDED)
    late = min(work()) - back
    watch.note(f"the first write came {late:.1f} s after its return")
    assert late <= SUCCEEDED
    assert {name_of(pod): (container_id(pod), restarts(pod)) for pod in twins.pods()} == before
    assert len({name for name in before if trail.work(name, back)}) == 1
