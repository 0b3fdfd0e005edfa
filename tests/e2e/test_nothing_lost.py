"""What changed is reconciled, whatever happens to the API server meanwhile; what runs at the end is let end."""

import asyncio
import re
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.load import Load, loading
from tests.e2e.lost_node import Watch
from tests.e2e.outside import ROOT, Outside, running_outside
from tests.testbed.cluster import Cluster
from tests.testbed.installation import events_of
from tests.testbed.link import linked
from tests.testbed.processes import wait_until

OPERATORS = ROOT / "tests/e2e/operators"
RATE = 300.0
"""Changes a second."""
OBJECTS = 100
QUEUED, WORKERS, EVENTS = 10_000, 8, 20
"""How many keys wait; of how many each worker has one; how many Events come of one. The last two are the operator's."""
STARTED = 3.0
"""Seconds until a process runs and its caches are full."""


@pytest.mark.asyncio
async def test_a_restart_of_the_api_server_and_a_compaction_lose_no_change(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    seen, watch, enough = tmp_path / "seen", Watch(), asyncio.Event()
    seen.touch()
    arguments = [str(OPERATORS / "witness.py"), "--namespace", namespace, "--no-leader-elect"]
    with (
        linked(cluster.kubeconfig, tmp_path / "kubeconfig") as link,
        running_outside(link.kubeconfig, tmp_path / "log", *arguments, SEEN=str(seen)) as operator,
    ):
        async with loading(cluster, namespace) as load, asyncio.TaskGroup() as group:
            await load.create(f"object-{number}" for number in range(OBJECTS))
            assert await asyncio.to_thread(wait_until, lambda: operator.is_ready, 5 * STARTED)
            group.create_task(load.change(RATE, until=enough))
            await changes(load, 900, watch)
            await asyncio.to_thread(restart_api, cluster, watch)
            await changes(load, 900, watch)
            # Changes that it has not been told of and that nobody can tell any more, once it asks again.
            link.cut()
            await changes(load, 300, watch)
            await asyncio.to_thread(restart_api, cluster, watch, compacts=True)
            link.mend()
            await changes(load, 900, watch)
            enough.set()
        watch.note(f"{load.count - OBJECTS} changes")

        def unseen() -> set[tuple[str, str]]:
            return set(load.versions.items()) - {tuple(line.split()) for line in seen.read_text().splitlines()}

        watch.until("all is seen", lambda: not unseen(), 30)
        # It did hold a version that had been compacted away; else this has tested nothing.
        assert restarts(operator, "expired") > 0
        assert not operator.told("A core task ended, so the operator stops")


async def changes(load: Load, count: int, watch: Watch) -> None:
    """Let there be so many."""
    started, before = time.monotonic(), load.count
    assert await asyncio.to_thread(wait_until, lambda: load.count >= before + count, 60)
    watch.note(f"{count / (time.monotonic() - started):.0f} changes a second")


def restart_api(cluster: Cluster, watch: Watch, *, compacts: bool = False) -> None:
    cluster.control_plane.kill()
    if compacts:
        cluster.control_plane.compact()
    cluster.control_plane.start_again()
    watch.note("the API server is back")


def restarts(operator: Outside, reason: str) -> float:
    """How often it had to begin its watch of ConfigMaps anew for that reason."""
    pattern = rf'^asyncop_watch_restarts_total\{{reason="{reason}",resource="configmaps"\}} (\S+)$'
    found = re.search(pattern, operator.metrics(), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.asyncio
async def test_told_to_end_with_a_full_queue_it_lets_end_what_runs_and_gives_its_lease_up(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    noted, watch = tmp_path / "noted", Watch()
    noted.touch()
    async with loading(cluster, namespace) as load:
        await load.create(f"object-{number}" for number in range(QUEUED))
    watch.note(f"{QUEUED} objects")
    arguments = [
        *(str(OPERATORS / "unhurried.py"), "--namespace", namespace),
        *("--leader-elect", f"--leader-election-namespace={namespace}"),
    ]
    with running_outside(cluster.kubeconfig, tmp_path / "log", *arguments, NOTED=str(noted)) as operator:

        def notes(what: str) -> dict[str, float]:
            lines = [line.split() for line in noted.read_text().splitlines()]
            return {name: float(at) for kind, name, at in lines if kind == what}

        watch.until("all workers work", lambda: len(notes("begin")) >= WORKERS, 5 * STARTED)
        assert queued(operator) >= QUEUED - 2 * WORKERS

        operator.signal(signal.SIGTERM)

        assert operator.wait(timeout=30) == 0
        watch.note("it has ended")

    begun, ended = notes("begin"), notes("end")
    (told,) = [entry["ts"] for entry in operator.log() if entry["msg"].startswith("Stopping")]
    assert set(ended) == set(begun)
    assert max(begun.values()) <= datetime.fromisoformat(told).timestamp()
    assert max(ended.values()) > max(begun.values()) + 1.5, "nothing was running when it was told"
    about = [event["regarding"]["name"] for event in events_of(cluster, namespace, "unhurried")]
    assert sorted(about) == sorted(list(begun) * EVENTS)
    assert lease(cluster, namespace)["spec"].get("holderIdentity", "") == ""


def queued(operator: Outside) -> float:
    """Keys that wait, of either priority."""
    found = re.findall(r'^workqueue_depth\{[^}]*name="dawdle"[^}]*\} (\S+)$', operator.metrics(), re.MULTILINE)
    return sum(map(float, found))


def lease(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return cluster.api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/unhurried")
