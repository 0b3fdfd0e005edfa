"""Two replicas outside of the cluster: whatever happens to the leader, one goes on soon and two never write at once.

What the API server's audit log says counts. The leader writes all the time, so a write that must not be would be there.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.lost_node import Watch
from tests.e2e.outside import ENDED, ROOT, Outside, running_outside
from tests.e2e.trail import Trail
from tests.testbed.cluster import Cluster
from tests.testbed.link import Link, linked
from tests.testbed.processes import wait_until

DIARY = ROOT / "tests/e2e/operators/diary.py"
LEASE, DEADLINE, RETRY = 6.0, 4.0, 1.0
"""The Lease's times in seconds, shorter than the defaults so that nobody waits."""
SUCCEEDED = 2 * RETRY + 5.0
"""Seconds from the end of a lease, or from when it was given up, until its successor must have written."""
STARTED = 3.0
"""Seconds until a process runs and its caches are full."""


class Replica:
    """One of the two: its process, its name in the audit log, and its own link to the API server."""

    def __init__(self, name: str, process: Outside, link: Link) -> None:
        self.name, self.process, self.link = name, process, link


@pytest.fixture(scope="module")
def kubeconfigs(cluster: Cluster) -> dict[str, Path]:
    """One for each replica, by its name for the API server."""
    plane, made = cluster.control_plane, {}
    for name in ("replica-one", "replica-two"):
        made[name] = cluster.path / f"{name}.kubeconfig"
        plane.pki.issue(name, name, "system:masters")
        plane.pki.write_kubeconfig(made[name], name, plane.server)
    return made


@pytest.fixture
def trail(cluster: Cluster, kubeconfigs: dict[str, Path]) -> Trail:
    return Trail(cluster.audit_log, set(kubeconfigs))


@pytest.fixture
def pair(
    cluster: Cluster, namespace: str, kubeconfigs: dict[str, Path], trail: Trail, tmp_path: Path
) -> Iterator[tuple[Replica, Replica]]:
    """The leader, which writes, and its standby, which is ready."""
    diary = {"metadata": {"name": "diary", "labels": {"diary": "true"}}}
    cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", diary)
    arguments = [str(DIARY), "--namespace", namespace, *election(namespace)]
    with ExitStack() as stack:

        def start(name: str) -> Replica:
            link = stack.enter_context(linked(kubeconfigs[name], tmp_path / f"{name}.kubeconfig"))
            process = running_outside(link.kubeconfig, tmp_path / f"{name}.log", *arguments, POD_NAME=name)
            return Replica(name, stack.enter_context(process), link)

        leader, standby = start("replica-one"), None
        assert wait_until(lambda: bool(trail.work(leader.name)), 5 * STARTED)
        standby = start("replica-two")
        assert wait_until(lambda: standby.process.is_ready and standby.process.told("Standing by") > 0, 5 * STARTED)
        yield leader, standby
    trail.check(LEASE)


def election(namespace: str) -> list[str]:
    """The flags that switch it on."""
    return [
        *("--leader-elect", f"--leader-election-namespace={namespace}"),
        f"--leader-election-lease-duration={LEASE}",
        f"--leader-election-renew-deadline={DEADLINE}",
        f"--leader-election-retry-period={RETRY}",
    ]


def succeeds(trail: Trail, old: Replica, new: Replica, watch: Watch, lease: float = LEASE) -> None:
    """Wait for the first write of the new leader, and hold it against the end of the old one's lease."""
    watch.until(f"{new.name} writes", lambda: bool(trail.work(new.name)), lease + SUCCEEDED)
    late = trail.work(new.name)[0].answered - (trail.renewals(old.name)[-1].answered + lease)
    watch.note(f"its first write came {late:+.1f} s after the lease's end")
    assert late <= SUCCEEDED
    trail.check(LEASE)


def test_a_killed_leader_is_succeeded_once_its_lease_has_ended(pair: tuple[Replica, Replica], trail: Trail) -> None:
    old, new = pair
    watch = Watch()

    old.process.signal(signal.SIGKILL)

    succeeds(trail, old, new, watch)


def test_a_leader_told_to_end_gives_its_lease_up_and_is_succeeded_at_once(
    pair: tuple[Replica, Replica], trail: Trail
) -> None:
    old, new = pair
    watch = Watch()

    assert old.process.terminate() == 0

    watch.note(f"{old.name} has ended")
    succeeds(trail, old, new, watch, lease=0)
    assert [write for write in trail.writes() if write.who == old.name][-1].is_of_lease


def test_a_leader_that_is_cut_off_has_stopped_before_it_is_succeeded_and_then_stands_by(
    pair: tuple[Replica, Replica], trail: Trail
) -> None:
    old, new = pair
    watch = Watch()

    old.link.cut()

    watch.until(f"{old.name} gives up", lambda: old.process.told("No longer leader") == 1, DEADLINE)
    assert not trail.work(new.name), "it was succeeded before it had stopped"
    succeeds(trail, old, new, watch)

    old.link.mend()
    watch.until(f"{old.name} stands by", lambda: old.process.told("Standing by") == 1, RETRY)
    assert old.process.is_ready
    mended = time.time()
    assert new.process.terminate() == 0
    watch.until(f"{old.name} writes again", lambda: bool(trail.work(old.name, mended)), SUCCEEDED)


def test_a_leader_that_was_frozen_for_longer_than_its_lease_writes_nothing_when_it_wakes(
    pair: tuple[Replica, Replica], trail: Trail
) -> None:
    old, new = pair
    watch = Watch()
    # Frozen between its look at the clock and the sending of a write it would send that one: nothing but the server
    # could tell. So it is frozen in a pause, which a write has just begun.
    noticed = len(trail.work(old.name))
    assert wait_until(lambda: len(trail.work(old.name)) > noticed, ENDED, interval=0.005)

    old.process.signal(signal.SIGSTOP)

    succeeds(trail, old, new, watch)
    woken = time.time()
    old.process.signal(signal.SIGCONT)
    watch.until(f"{old.name} gives up", lambda: old.process.told("No longer leader") == 1, RETRY)
    watch.until(f"{old.name} stands by", lambda: old.process.told("Standing by") == 1, RETRY)
    watch.until(f"{new.name} goes on", lambda: len(trail.work(new.name, woken)) > 5, RETRY)
    assert not trail.work(old.name, woken)
    assert old.process.is_ready
