"""Leader election against a real API server: never two at once, taken over only by our own clock, released last."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

import asyncop
from asyncop.manager.leader import LeaderElectionOptions, LeaderElector
from tests.contract.operating import until
from tests.testbed.api import ApiError
from tests.testbed.proxy import proxied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.testbed.cluster import Cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

QUICK = {"lease_duration": 2.0, "renew_deadline": 1.2, "retry_period": 0.2}


@contextlib.asynccontextmanager
async def elector(kubeconfig: Path, namespace: str, identity: str) -> AsyncIterator[LeaderElector]:
    async with asyncop.connect(str(kubeconfig), user_agent=identity, field_manager=identity) as client:
        yield LeaderElector(client, LeaderElectionOptions(name="op", namespace=namespace, identity=identity, **QUICK))


class Lease:
    """The Lease as the server has it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._call = cluster.api.call
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/op"

    def holder(self) -> str:
        try:
            return str(self._call("GET", self.path)["spec"].get("holderIdentity", ""))
        except ApiError:
            return ""

    def transitions(self) -> int:
        return int(self._call("GET", self.path)["spec"]["leaseTransitions"])


@pytest.fixture
def lease(control_plane: Cluster, namespace: str) -> Lease:
    return Lease(control_plane, namespace)


async def test_the_first_leads_and_the_second_stands_by_until_it_is_released(
    kubeconfig: Path, namespace: str, lease: Lease
) -> None:
    async with elector(kubeconfig, namespace, "a") as first, elector(kubeconfig, namespace, "b") as second:
        await asyncio.wait_for(first.acquire(), 10)
        holding = asyncio.create_task(first.hold())
        campaign = asyncio.create_task(second.acquire())
        await asyncio.sleep(3)  # longer than a lease lasts: the renewals keep the second out
        assert (first.is_leader, second.is_leader, campaign.done()) == (True, False, False)
        holding.cancel()
        await asyncio.wait({holding})
        started = asyncio.get_running_loop().time()
        await first.release()
        await asyncio.wait_for(campaign, 10)
        assert asyncio.get_running_loop().time() - started < QUICK["lease_duration"], "it need not wait for the end"
        assert (lease.holder(), lease.transitions()) == ("b", 1)


async def test_a_dead_leaders_lease_is_taken_over_after_a_whole_duration_by_our_own_clock(
    kubeconfig: Path, namespace: str, lease: Lease
) -> None:
    async with elector(kubeconfig, namespace, "a") as dead, elector(kubeconfig, namespace, "b") as other:
        await asyncio.wait_for(dead.acquire(), 10)
        started = asyncio.get_running_loop().time()
        await asyncio.wait_for(other.acquire(), 20)
        assert asyncio.get_running_loop().time() - started >= QUICK["lease_duration"]
        assert not dead.is_leader
        assert lease.holder() == "b"


async def test_a_renewal_that_hangs_ends_the_lead_at_the_deadline(
    kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    hang = asyncio.Event()

    async def silence(request: web.Request) -> None:
        await hang.wait()

    async with proxied(kubeconfig, tmp_path) as proxy, elector(proxy.kubeconfig, namespace, "a") as leader:
        await asyncio.wait_for(leader.acquire(), 10)
        proxy.before("GET", "/leases/op", silence)
        started = asyncio.get_running_loop().time()
        await asyncio.wait_for(leader.hold(), 10)
        assert asyncio.get_running_loop().time() - started < QUICK["lease_duration"]
        assert not leader.is_leader
        with pytest.raises(asyncop.LeaseLostError):
            leader.gate()
        hang.set()


@pytest.mark.parametrize("status", [403, 500])
async def test_renewals_that_are_refused_end_the_lead_before_another_can_have_it(
    kubeconfig: Path, namespace: str, tmp_path: Path, status: int
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": status, "message": "no"}, status=status)

    async with (
        proxied(kubeconfig, tmp_path) as proxy,
        elector(proxy.kubeconfig, namespace, "a") as leader,
        elector(kubeconfig, namespace, "b") as other,
    ):
        await asyncio.wait_for(leader.acquire(), 10)
        proxy.before("PATCH", "/leases/op", refuse)
        campaign = asyncio.create_task(other.acquire())
        await asyncio.wait_for(leader.hold(), 10)
        assert not campaign.done(), "no moment with two leaders"
        await asyncio.wait_for(campaign, 10)


async def test_a_lead_taken_by_another_ends_at_the_next_look(
    kubeconfig: Path, namespace: str, control_plane: Cluster, lease: Lease
) -> None:
    async with elector(kubeconfig, namespace, "a") as leader:
        await asyncio.wait_for(leader.acquire(), 10)
        control_plane.api.call("PATCH", lease.path, {"spec": {"holderIdentity": "thief"}})
        await asyncio.wait_for(leader.hold(), 10)
        assert not leader.is_leader
        await leader.release()
        assert lease.holder() == "thief", "what isn't ours isn't released"


async def test_a_foreign_wall_clock_is_not_trusted(
    kubeconfig: Path, namespace: str, control_plane: Cluster, lease: Lease
) -> None:
    async with elector(kubeconfig, namespace, "a") as leader, elector(kubeconfig, namespace, "b") as other:
        await asyncio.wait_for(leader.acquire(), 10)
        holding = asyncio.create_task(leader.hold())
        campaign = asyncio.create_task(other.acquire())
        for _ in range(5):  # the leader's clock is years behind: its Lease looks long ended
            with contextlib.suppress(ApiError):
                past = "2001-01-01T00:00:00.000000Z"
                control_plane.api.call("PATCH", lease.path, {"spec": {"renewTime": past}})
            await asyncio.sleep(0.3)
        assert not campaign.done()
        for running in (holding, campaign):
            running.cancel()
        await asyncio.wait({holding, campaign})


async def test_the_gate_gives_writes_only_what_is_left_of_the_deadline(kubeconfig: Path, namespace: str) -> None:
    async with elector(kubeconfig, namespace, "a") as leader:
        with pytest.raises(asyncop.LeaseLostError):
            leader.gate()
        await asyncio.wait_for(leader.acquire(), 10)
        assert 0 < leader.gate() <= QUICK["renew_deadline"]
        await until(lambda: not leader.is_leader, "an unrenewed lead runs out by itself")


@pytest.mark.parametrize(
    "wrong", [{"lease_duration": 10.0}, {"renew_deadline": 2.0}, {"retry_period": 0.0}, {"retry_period": 9.0}]
)
async def test_durations_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(asyncop.ConfigError, match="longer than"):
        LeaderElectionOptions(name="op", namespace="ns", **wrong)
