"""stuckPods among replicas: who has become the leader only now has no evidence yet, and waits for some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import asyncop
from asyncop.operators.stuckPods import build
from asyncop.operators.stuckPods.options import StuckPodsOptions
from tests.contract.operating import operating, until
from tests.contract.simulated_nodes import SHORT, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.cluster import Cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

FREEZE = 3.0
ELECTION = {"lease_duration": 4.0, "renew_deadline": 3.0, "retry_period": 0.2}
"""Until the lease of a dead leader is over, a freeze that began with the process would be over too."""


async def test_the_freeze_begins_when_the_lead_is_won(control_plane: Cluster, world: World, kubeconfig: Path) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases"
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 4, "renewTime": "2026-01-01T00:00:00.000000Z"}
    control_plane.api.call("POST", leases, {"metadata": {"name": "guard"}, "spec": spec})
    world.stuck()
    world.kill(world.dead)
    guard = build(StuckPodsOptions(**{**SHORT, "startup_freeze": asyncop.Duration(FREEZE)}))
    election = asyncop.LeaderElectionOptions(name="guard", namespace=world.namespace, **ELECTION)
    loop = asyncio.get_running_loop()

    async with operating(kubeconfig, world.namespace, *guard.reconcilers, tasks=guard.tasks, leader_election=election):
        path = f"{leases}/guard"
        await until(lambda: control_plane.api.call("GET", path)["spec"]["holderIdentity"] != "dead", "it leads")
        leads = loop.time()
        await world.until_gone("web-0")

    assert loop.time() - leads >= FREEZE - 0.5  # we have seen it lead a moment late
