"""Faults that people met with Pods on dead nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import asyncop
from tests.contract.simulated_nodes import UNREACHABLE, World, guarding

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]


def tolerating(seconds: int | None) -> list[dict[str, object]]:
    toleration: dict[str, object] = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    return [toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}]


async def test_bl_46_only_what_the_rule_names_is_force_deleted(world: World, kubeconfig: Path) -> None:
    gone = ["set", "patient"]
    world.stuck("set")
    world.stuck("patient", tolerations=tolerating(300))
    staying = {
        "replica": world.stuck("replica", owner="ReplicaSet"),
        "daemon": world.stuck("daemon", owner="DaemonSet"),
        "tolerant": world.stuck("tolerant", tolerations=tolerating(None)),
        "guarded": world.stuck("guarded", metadata={"finalizers": ["example.com/guard"]}),
        "running": world.pod("running"),
        # A mirror Pod's annotation is enough for us; only the kubelet may write the real one's owner.
        "mirror": world.pod("mirror", metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}}, owner="Node"),
    }
    world.terminate("mirror")
    world.kill(world.dead)
    async with guarding(world, kubeconfig, owner_kinds=("StatefulSet", "DaemonSet", "Node")):
        for name in gone:
            await world.until_gone(name)
        await world.until_told("guarded", "HasFinalizer")
        for name in ("replica", "daemon", "tolerant", "mirror"):
            await world.until_told(name, "Excluded")
        assert {name: world.uid(name) for name in staying} == staying
        for name in staying:
            reasons = world.reasons(name)
            assert len(reasons) == len(set(reasons)), "one Event a Pod and reason"
    world.api.call("PATCH", f"/api/v1/namespaces/{world.namespace}/pods/guarded", {"metadata": {"finalizers": None}})


async def test_bl_48_a_healthy_node_with_the_taint_keeps_its_slow_pod(world: World, kubeconfig: Path) -> None:
    world.pod("slow")
    world.terminate("slow", grace=2)
    world.taint(world.dead)
    uid = world.uid("slow")
    async with guarding(world, kubeconfig):
        await world.until_told("slow", "NodeReady")
        await asyncio.sleep(3)
        assert world.uid("slow") == uid


async def test_bl_48_a_node_that_returns_starts_the_window_anew(world: World, kubeconfig: Path) -> None:
    world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig, lease_window=asyncop.Duration(2)):
        await world.until_told("web-0", "LeaseWatched")
        world.set_ready(world.dead, "True")
        await world.until_told("web-0", "NodeReady")
        world.set_ready(world.dead, "Unknown")
        back_at = asyncio.get_running_loop().time()
        await world.until_gone("web-0")
        assert asyncio.get_running_loop().time() - back_at > 2, "a whole window after the return"


async def test_bl_48_the_pods_of_a_deleted_node_are_left_to_the_built_in_collector(
    world: World, kubeconfig: Path
) -> None:
    uid = world.stuck()
    world.kill(world.dead)
    async with guarding(world, kubeconfig, lease_window=asyncop.Duration(2)):
        await world.until_told("web-0", "LeaseWatched")
        world.api.call("DELETE", f"/api/v1/nodes/{world.dead}")
        await asyncio.sleep(4)
        assert world.uid("web-0") == uid
