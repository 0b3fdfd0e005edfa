"""stuckPods on a real API server: when it acts, and each case in which it must not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

import asyncop
from tests.contract.operating import until
from tests.contract.simulated_nodes import World, guarding
from tests.testbed.proxy import proxied

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]


async def holds(world: World, uid: str, name: str = "web-0", windows: float = 3) -> None:
    """The Pod outlives several lease windows."""
    loop = asyncio.get_running_loop()
    end = loop.time() + windows * 1.0
    while loop.time() < end:
        assert await asyncio.to_thread(world.uid, name) == uid
        await asyncio.sleep(0.1)


async def test_a_stuck_pod_of_a_dead_node_is_force_deleted(world: World, kubeconfig: Path) -> None:
    world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig):
        await world.until_gone("web-0")
        await world.until_told("web-0", "ForceDeleted")


async def test_a_pod_that_gets_stuck_while_we_watch_is_found(world: World, kubeconfig: Path) -> None:
    world.pod("web-0")
    async with guarding(world, kubeconfig):
        world.kill(world.dead, age=0)
        world.terminate("web-0")
        await world.until_gone("web-0")


async def test_a_node_that_is_back_after_its_taint_keeps_its_pod(world: World, kubeconfig: Path) -> None:
    uid = world.pod("web-0")
    async with guarding(world, kubeconfig):
        world.kill(world.dead)
        world.come_back(world.dead)
        world.terminate("web-0")
        await holds(world, uid)


async def test_a_node_that_is_back_after_its_pod_is_terminating_keeps_it(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead, age=0)
    async with guarding(world, kubeconfig, taint_age=asyncop.Duration(2)):
        await world.until_told("web-0", "TaintYoung")
        world.come_back(world.dead)
        await holds(world, uid, windows=5)


async def test_a_node_that_is_back_inside_the_lease_window_keeps_its_pod(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig, lease_window=asyncop.Duration(2)):
        await world.until_told("web-0", "LeaseWatched")
        world.renew(world.dead)
        await world.until_told("web-0", "LeaseFresh")
        world.come_back(world.dead)
        await holds(world, uid, windows=5)


async def test_a_kubelet_that_reports_the_pod_just_before_the_delete_wins(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    uid = world.stuck()
    world.kill(world.dead)

    async def kubelet_is_back(request: web.Request) -> None:
        await asyncio.to_thread(world.report, "web-0")
        await asyncio.to_thread(world.come_back, world.dead)

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("DELETE", "/pods/web-0$", kubelet_is_back)
        async with guarding(world, proxy.kubeconfig):
            await world.until_told("web-0", "Changed")
            await holds(world, uid)
        deletes = [seen for seen in proxy.seen if seen.startswith("DELETE")]
        assert len(deletes) == 1, "refused with 409, judged again, not sent again"


async def test_a_pod_reported_just_before_the_delete_is_judged_again_and_deleted_if_its_node_stays_dead(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    world.stuck()
    world.kill(world.dead)
    reported: list[str] = []

    async def somebody_writes(request: web.Request) -> None:
        if not reported:
            reported.append("once")
            await asyncio.to_thread(world.report, "web-0")

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("DELETE", "/pods/web-0$", somebody_writes)
        async with guarding(world, proxy.kubeconfig):
            await world.until_gone("web-0")
        assert len([seen for seen in proxy.seen if seen.startswith("DELETE")]) == 2


async def test_a_node_that_comes_back_after_a_delete_was_sent_loses_that_pod_and_no_other(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    pods = {name: world.stuck(name) for name in ("web-0", "web-1", "web-2")}
    world.kill(world.dead)

    async def node_is_back(request: web.Request) -> None:
        await asyncio.to_thread(world.come_back, world.dead)

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.after("DELETE", "/pods/web-", node_is_back)
        async with guarding(world, proxy.kubeconfig):
            await until(lambda: None in [world.uid(name) for name in pods], "one is gone")
            left = {name: uid for name, uid in pods.items() if world.uid(name)}
            assert len(left) == 2
            for name, uid in left.items():
                await holds(world, uid, name, windows=1.5)


async def test_a_taint_on_a_healthy_node_deletes_nothing(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.taint(world.dead)
    async with guarding(world, kubeconfig):
        await world.until_told("web-0", "NodeReady")
        await holds(world, uid)


async def test_a_lease_that_moves_deletes_nothing(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig):
        loop = asyncio.get_running_loop()
        end = loop.time() + 4
        while loop.time() < end:
            await asyncio.to_thread(world.renew, world.dead)
            assert world.uid("web-0") == uid
            await asyncio.sleep(0.3)
        await world.until_told("web-0", "LeaseFresh")


async def test_a_missing_lease_proves_nothing(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    world.api.call("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{world.dead}")
    async with guarding(world, kubeconfig):
        await world.until_told("web-0", "LeaseMissing")
        await holds(world, uid)


@pytest.mark.parametrize("path", ["/leases/", "/api/v1/nodes/", "/pods/web-0"], ids=["Lease", "Node", "Pod"])
async def test_a_failed_read_means_no(world: World, kubeconfig: Path, tmp_path: Path, path: str) -> None:
    uid = world.stuck()
    world.kill(world.dead)

    async def fail(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403)

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("GET", path, fail)
        async with guarding(world, proxy.kubeconfig):
            await world.until_told("web-0", "ReadFailed")
            await holds(world, uid)
        assert not [seen for seen in proxy.seen if seen.startswith("DELETE")]


async def test_a_refused_deletion_is_told_as_such(world: World, kubeconfig: Path, tmp_path: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead)

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403)

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("DELETE", "/pods/web-0$", refuse)
        async with guarding(world, proxy.kubeconfig):
            await world.until_told("web-0", "DeleteFailed")
            assert world.uid("web-0") == uid


@pytest.mark.parametrize(
    "breaker",
    [{"max_unhealthy_nodes": 0}, {"startup_freeze": asyncop.Duration(30)}],
    ids=["too many nodes", "just started"],
)
async def test_an_open_breaker_deletes_nothing(world: World, kubeconfig: Path, breaker: dict[str, object]) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig, **breaker):
        await world.until_told("web-0", "BreakerOpen")
        await holds(world, uid)


async def test_a_minutes_budget_of_deletions_holds_the_rest_back(world: World, kubeconfig: Path) -> None:
    for number in range(4):
        world.stuck(f"web-{number}")
    world.kill(world.dead)

    def left() -> list[str]:
        return [f"web-{number}" for number in range(4) if world.uid(f"web-{number}")]

    async with guarding(world, kubeconfig, max_deletions_per_minute=2):
        await until(lambda: len(left()) == 2, "two of four are gone")
        for name in left():
            await world.until_told(name, "BreakerOpen")
        await asyncio.sleep(1)
        assert len(left()) == 2


async def test_one_of_two_nodes_at_fifty_percent_is_still_acted_on(world: World, kubeconfig: Path) -> None:
    world.stuck()
    world.kill(world.dead)
    assert len(world.api.call("GET", "/api/v1/nodes")["items"]) == 2
    async with guarding(world, kubeconfig, max_unhealthy_nodes="50%"):
        await world.until_gone("web-0")


async def test_mode_report_says_what_it_would_do_and_does_nothing(world: World, kubeconfig: Path) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig, mode="report"):
        await world.until_told("web-0", "ReportOnly")
        await holds(world, uid)


async def test_the_annotation_never_is_obeyed(world: World, kubeconfig: Path) -> None:
    uid = world.stuck(metadata={"annotations": {"asyncop.dev/force-delete": "never"}})
    world.kill(world.dead)
    async with guarding(world, kubeconfig):
        await world.until_told("web-0", "Excluded")
        await holds(world, uid)


async def test_a_pod_reborn_under_the_name_just_before_the_delete_lives(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    world.stuck()
    world.kill(world.dead)
    reborn: list[str] = []

    async def rebirth(request: web.Request) -> None:
        if not reborn:
            await asyncio.to_thread(world.terminate, "web-0", 0)
            reborn.append(await asyncio.to_thread(world.pod, "web-0"))

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("DELETE", "/pods/web-0$", rebirth)
        async with guarding(world, proxy.kubeconfig):
            await until(lambda: bool(reborn), "the delete was sent")
            await holds(world, reborn[0])


@pytest.mark.parametrize(
    "taken_out",
    [{"labels": None}, {"annotations": {"asyncop.dev/paused": "true"}}],
    ids=["label removed", "paused"],
)
async def test_a_pod_that_was_taken_out_just_before_the_last_look_lives(
    world: World, kubeconfig: Path, tmp_path: Path, taken_out: dict[str, object]
) -> None:
    uid = world.stuck(metadata={"labels": {"app": "web"}})
    world.kill(world.dead)
    path = f"/api/v1/namespaces/{world.namespace}/pods/web-0"

    async def somebody_takes_it_out(request: web.Request) -> None:
        await asyncio.to_thread(world.api.call, "PATCH", path, {"metadata": taken_out})

    async with proxied(kubeconfig, tmp_path) as proxy:
        proxy.before("GET", "/pods/web-0$", somebody_takes_it_out)
        async with guarding(world, proxy.kubeconfig, selector="app=web"):
            await until(lambda: f"GET {path}" in proxy.seen, "it was looked at for the last time")
            await holds(world, uid)
        assert not [seen for seen in proxy.seen if seen.startswith("DELETE")]


async def test_every_reason_is_told_once_a_pod(world: World, kubeconfig: Path) -> None:
    world.stuck()
    world.taint(world.dead)
    async with guarding(world, kubeconfig):
        await world.until_told("web-0", "NodeReady")
        for _ in range(5):
            world.report("web-0")
        await asyncio.sleep(1)
        assert world.reasons("web-0") == ["NodeReady"]


async def test_only_the_namespaces_and_labels_of_the_options_are_looked_at(world: World, kubeconfig: Path) -> None:
    uid = world.stuck("other")
    world.stuck("web-0", metadata={"labels": {"app": "web"}})
    world.kill(world.dead)
    async with guarding(world, kubeconfig, selector={"app": "web"}):
        await world.until_gone("web-0")
        assert world.uid("other") == uid
