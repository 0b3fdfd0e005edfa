"""Two replicas of one operator: one works, the other is warm, and nothing is written by one that may have lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

import asyncop
from tests.contract.operating import operating, until
from tests.testbed.proxy import proxied

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.cluster import Cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


def election(namespace: str, identity: str) -> asyncop.LeaderElectionOptions:
    return asyncop.LeaderElectionOptions(
        name="op", namespace=namespace, identity=identity, lease_duration=2.0, renew_deadline=1.2, retry_period=0.2
    )


class Replica:
    """One replica's reconciler and task, and what they did."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.leads = 0
        self.refused = 0

        @asyncop.reconciler(ConfigMap, name="look")
        async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
            self.ran.append(obj.metadata.name)

        @asyncop.task(name="lead")
        async def lead() -> None:
            self.leads += 1

        self.reconciler, self.tasks = look, [lead]


def create(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})


async def test_a_standby_works_only_after_the_leader_has_gone_and_then_on_everything(
    control_plane: Cluster, kubeconfig: Path, namespace: str
) -> None:
    first, second = Replica(), Replica()
    create(control_plane, namespace, "a")
    async with contextlib.AsyncExitStack() as later:
        leading = operating(
            kubeconfig, namespace, first.reconciler, tasks=first.tasks, leader_election=election(namespace, "first")
        )
        async with leading:
            await until(lambda: first.ran == ["a"], "the first leads")
            standby = operating(
                kubeconfig, namespace, second.reconciler, tasks=second.tasks, leader_election=election(namespace, "b")
            )
            manager = await later.enter_async_context(standby)
            await until(lambda: manager._unready() is None, "the standby is ready")
            create(control_plane, namespace, "b")
            await until(lambda: "b" in first.ran, "the leader works")
            assert (second.ran, second.leads) == ([], 0)
        await until(lambda: sorted(second.ran) == ["a", "b"], "the standby leads and looks at everything")
        assert second.leads == 1


async def test_a_lost_lead_stops_all_work_at_once_and_is_campaigned_for_again(
    control_plane: Cluster, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    stopped, started = asyncio.Event(), asyncio.Event()
    runs: list[str] = []
    is_cut = False

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        runs.append(obj.metadata.name)
        started.set()
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

    async def cut(request: web.Request) -> web.Response | None:
        return web.json_response({"code": 503, "message": "away"}, status=503) if is_cut else None

    create(control_plane, namespace, "a")
    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("GET", "/leases/op", cut)
        async with operating(proxy.kubeconfig, namespace, look, leader_election=election(namespace, "a")):
            await asyncio.wait_for(started.wait(), 10)
            is_cut = True
            await asyncio.wait_for(stopped.wait(), 10)
            is_cut = False
            await until(lambda: runs == ["a", "a"], "it leads again and looks at everything")


async def test_a_write_after_the_lead_may_be_lost_is_not_sent(
    control_plane: Cluster, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    errors: list[Exception] = []
    is_cut = False

    @asyncop.reconciler(ConfigMap)
    async def writes(obj: ConfigMap, ctx: asyncop.Context) -> None:
        nonlocal is_cut
        is_cut = True
        for _ in range(200):
            try:
                await ctx.require_leadership()
                await ctx.client.patch(obj, {"metadata": {"labels": {"at": str(ctx.now())}}})
            except asyncop.LeaseLostError as error:
                errors.append(error)
                raise
            await asyncio.shield(asyncio.sleep(0.02))

    async def cut(request: web.Request) -> web.Response | None:
        return web.json_response({"code": 503, "message": "away"}, status=503) if is_cut else None

    create(control_plane, namespace, "a")
    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("GET", "/leases/op", cut)
        async with operating(proxy.kubeconfig, namespace, writes, leader_election=election(namespace, "a")):
            await until(lambda: is_cut, "it leads")
            patches = lambda: sum(seen.endswith("/configmaps/a") and seen[:5] == "PATCH" for seen in proxy.seen)  # noqa: E731
            await asyncio.sleep(1.5)  # beyond the renew deadline
            count = patches()
            await asyncio.sleep(0.5)
            assert patches() == count > 0
            is_cut = True


async def test_the_lease_is_released_last(
    control_plane: Cluster, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ctx.event("Ending", "the last thing it says")

    create(control_plane, namespace, "a")
    async with proxied(kubeconfig, tmp_path) as proxy:
        async with operating(
            proxy.kubeconfig, namespace, look, leader_election=election(namespace, "a"), graceful_timeout=0.2
        ):
            await until(lambda: any("/leases" in seen for seen in proxy.seen), "it campaigns")
            await asyncio.sleep(0.5)
        writes = [seen for seen in proxy.seen if not seen.startswith("GET")]
        assert writes[-1].startswith("PATCH"), writes
        assert writes[-1].endswith("/leases/op")
        assert "/events" in writes[-2]
    lease = control_plane.api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/op")
    assert not lease["spec"].get("holderIdentity")
