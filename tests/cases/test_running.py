"""Faults that people met with retries and with reconcilers that wake themselves. Time is virtual, HTTP is real."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import asyncop
from tests.cases.embedded import TICK, World, embedded, until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(resolution=TICK)]

MAPS = "/api/v1/namespaces/default/configmaps"


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


async def test_bl_09_any_good_run_makes_the_next_failures_delay_small_again(tmp_path: Path) -> None:
    runs: list[tuple[float, int]] = []

    @asyncop.reconciler(ConfigMap, resync=0)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> asyncop.Result | None:
        runs.append((ctx.now(), ctx.attempt))
        if len(runs) <= 10 or len(runs) == 14:
            raise RuntimeError("fails")
        return asyncop.Result(requeue_after=30) if len(runs) <= 13 else None

    with capture_logs():
        async with embedded(tmp_path) as world:
            await world.create(MAPS, "a")
            async with world.operating("default", look):
                await until(lambda: len(runs) == 15, "all runs are done")
                await asyncio.sleep(600)
    assert [attempt for _, attempt in runs] == [*range(11), 0, 0, 0, 1]
    times = [at for at, _ in runs]
    assert times[10] - times[9] > 50, "after ten failures the delay was long"
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times[10:14])] == [30, 30, 30]
    assert 0.1 <= times[14] - times[13] < 0.2, "the first, small delay"


class Status(asyncop.Struct):
    last_heartbeat: str = ""
    members: tuple[str, ...] = ()
    parts: tuple[dict[str, Any], ...] = ()
    conditions: tuple[asyncop.Condition, ...] = ()


class Spec(asyncop.Struct):
    members: tuple[str, ...] = ()


class Widget(asyncop.Object, api_version="example.com/v1", kind="Widget"):
    spec: Spec = Spec()
    status: Status = Status()


class Gadget(asyncop.Object, api_version="example.com/v1", kind="Gadget"):
    spec: Spec = Spec()
    status: Status = Status()


def shuffled(values: Iterable[Any]) -> list[Any]:
    """As from a set: another order each time."""
    mixed = list(values)
    random.shuffle(mixed)
    return mixed


def waking_each_other(runs: list[str]) -> list[asyncop.Reconciler[Any]]:
    """Two reconcilers of two kinds, each woken by the other's objects, that always have fresh times to tell."""

    async def tell(obj: Any, ctx: asyncop.Context) -> asyncop.Result:
        runs.append(type(obj).__name__)
        now = f"2026-01-01T00:{len(runs) // 60 % 60:02}:{len(runs) % 60:02}Z"
        members = shuffled(obj.spec.members)
        condition = {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": now}
        other = {**condition, "type": "Other", "lastHeartbeatTime": now}
        parts = [{"name": name, "lastProbeTime": now} for name in members]
        ctx.status(last_heartbeat=now, members=members, parts=parts, conditions=shuffled([condition, other]))
        return asyncop.Result(requeue_after=5)

    def same_name(new: Any, old: Any, ctx: asyncop.MapContext) -> list[Any]:
        return [new or old]

    widgets = asyncop.reconciler(Widget, name="widgets", sources=[asyncop.watch(Gadget, same_name)])(tell)
    gadgets = asyncop.reconciler(Gadget, name="gadgets", sources=[asyncop.watch(Widget, same_name)])(tell)
    return [widgets, gadgets]


async def make(world: World, kind: str, names: list[str]) -> None:
    await world.define_widgets(kind=kind)
    path = f"/apis/example.com/v1/namespaces/default/{kind.lower()}s"
    body = {"apiVersion": "example.com/v1", "kind": kind, "spec": {"members": list("abcdefgh")}}
    for name in names:
        await world.create(path, name, body)


async def test_bl_12_a_settled_cluster_sees_no_writes_though_times_and_orders_change(tmp_path: Path) -> None:
    runs: list[str] = []
    async with embedded(tmp_path) as world:
        for kind in ("Widget", "Gadget"):
            await make(world, kind, ["one", "two"])
        async with world.operating("default", *waking_each_other(runs)):
            await until(lambda: len(world.writes()) == 4, "each has told its status once")
            await asyncio.sleep(5)
            settled, ran = asyncio.get_running_loop().time(), len(runs)
            await asyncio.sleep(120)
            assert world.writes(settled) == []
            assert len(runs) - ran >= 4 * 20, "they ran all the time"
            widget = "/apis/example.com/v1/namespaces/default/widgets/one"
            await world.call("PATCH", widget, {"spec": {"members": ["a", "z"]}})
            await asyncio.sleep(60)
            assert [asked.path for asked in world.writes(settled)] == [f"{widget}/status"], "what differs is written"
            status = (await world.call("GET", widget))["status"]
            assert sorted(status["members"]) == ["a", "z"]
            assert {part["name"] for part in status["parts"]} == {"a", "z"}
