"""Faults that people met with missing rights and with kinds that go away. Time is virtual, HTTP is real."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from structlog.testing import capture_logs

import asyncop
from tests.cases.embedded import DEFINITIONS, TICK, Asked, World, embedded, metric, refused, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, MutableMapping
    from pathlib import Path

    from aiohttp import web

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(resolution=TICK)]

NAMESPACES = [f"ns{number}" for number in range(1, 6)]
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
PICKED_UP = 60.0
"""Seconds until what has come back is at work again."""

Logs = list["MutableMapping[str, Any]"]


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Service(asyncop.Object, api_version="v1", kind="Service"):
    pass


class Secret(asyncop.Object, api_version="v1", kind="Secret"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Widget(asyncop.Object, api_version="example.com/v1", kind="Widget"):
    pass


Ran = dict[str, list[str]]
"""By kind, the namespaces of the objects that were reconciled."""


def for_each_kind(ran: Ran) -> list[asyncop.Reconciler[Any]]:
    def reconciler(kind: type[asyncop.Object]) -> asyncop.Reconciler[Any]:
        async def look(obj: Any, ctx: asyncop.Context) -> None:
            ran.setdefault(kind.__name__, []).append(obj.metadata.namespace)

        return asyncop.reconciler(kind, name=kind.__name__.lower(), namespaces=NAMESPACES, resync=0)(look)

    return [reconciler(kind) for kind in (ConfigMap, Service, Secret)]


def failures(logs: Logs, since: int = 0) -> list[tuple[str, str, str]]:
    """Kind, namespace and verb of each failure that was told as a warning."""
    told = [line for line in logs[since:] if line["event"] == "Could not list or watch"]
    return [(line["resource"], line["namespace"], line["verb"]) for line in told if line["log_level"] == "warning"]


async def probe(logs: Logs) -> tuple[int, str]:
    address = next(line["address"] for line in logs if line["event"] == "Serving health probes")
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/readyz?verbose") as response:
        return response.status, await response.text()


class Right:
    """The right to read Secrets in ns4."""

    def __init__(self, world: World, is_granted: bool = False) -> None:
        self.is_granted = is_granted
        world.instead(self._check)

    async def _check(self, asked: Asked) -> web.Response | None:
        if self.is_granted or not asked.path.startswith("/api/v1/namespaces/ns4/secrets"):
            return None
        message = f'secrets is forbidden: User "op" cannot {asked.verb} resource "secrets" in API group ""'
        return refused(403, "Forbidden", f'{message} in the namespace "ns4"')


@contextlib.asynccontextmanager
async def three_kinds_in_five_namespaces(folder: Path, ran: Ran, right: bool) -> AsyncIterator[tuple[World, Right]]:
    """An operator at work on them; the right to read Secrets in ns4 is there from the start or is not."""
    async with embedded(folder) as world:
        secrets = Right(world, right)
        await world.namespaces(*NAMESPACES)
        for namespace in NAMESPACES:
            path = f"/api/v1/namespaces/{namespace}"
            await world.create(f"{path}/configmaps", "a")
            await world.create(f"{path}/services", "a", {"spec": {"ports": [{"port": 80}]}})
            await world.create(f"{path}/secrets", "a")
        async with world.operating(None, *for_each_kind(ran), health_address="127.0.0.1:0"):
            yield world, secrets


async def picks_up(what: Callable[[], bool]) -> None:
    start = asyncio.get_running_loop().time()
    await until(what, "it is picked up")
    assert asyncio.get_running_loop().time() - start <= PICKED_UP


async def test_bl_29_a_right_that_is_missing_concerns_its_namespace_only_until_it_is_granted(tmp_path: Path) -> None:
    ran: Ran = {}
    others = [namespace for namespace in NAMESPACES if namespace != "ns4"]
    wanted = {"ConfigMap": NAMESPACES, "Service": NAMESPACES, "Secret": others}
    with capture_logs() as logs:
        async with three_kinds_in_five_namespaces(tmp_path, ran, right=False) as (world, right):
            await until(lambda: {kind: sorted(where) for kind, where in ran.items()} == wanted, "the rest works")
            await asyncio.sleep(60)
            status, detail = await probe(logs)
            assert status == 503
            assert "secrets in ns4: can't list" in detail
            tries = [asked for asked in world.asked if "/ns4/secrets" in asked.path]
            assert failures(logs) == [("secrets", "ns4", "list")] * len(tries), "a line for each try, no more"
            assert 4 <= len(tries) <= 8
            assert metric("asyncop_watch_failing", namespace="ns4", resource="secrets", verb="list") == 1

            right.is_granted = True
            await picks_up(lambda: "ns4" in ran["Secret"])
            assert (await probe(logs))[0] == 200
            assert metric("asyncop_watch_failing", namespace="ns4", resource="secrets", verb="list") is None
            assert {kind: len(where) for kind, where in ran.items()} == {"ConfigMap": 5, "Service": 5, "Secret": 5}


async def test_bl_29_a_right_taken_away_from_a_running_watch_is_told_and_taken_up_again(tmp_path: Path) -> None:
    ran: Ran = {}
    with capture_logs() as logs:
        async with three_kinds_in_five_namespaces(tmp_path, ran, right=True) as (world, right):
            await until(lambda: len(ran.get("Secret", ())) == 5 and world.server.open_watches == 15, "it works")
            await asyncio.sleep(60)
            assert (await probe(logs))[0] == 200
            right.is_granted = False
            world.faults.end_watches("secrets")
            told = len(logs)
            await world.call("PATCH", "/api/v1/namespaces/ns4/secrets/a", {"data": {"new": "eA=="}})
            await world.call("PATCH", "/api/v1/namespaces/ns5/secrets/a", {"data": {"new": "eA=="}})
            await until(lambda: ran["Secret"].count("ns5") == 2, "the rest works")
            await asyncio.sleep(120)
            assert set(failures(logs, told)) == {("secrets", "ns4", "watch")}
            assert 4 <= len(failures(logs, told)) <= 10
            assert metric("asyncop_watch_failing", namespace="ns4", resource="secrets", verb="watch") == 1
            assert (await probe(logs))[0] == 200, "what was ready once stays so"
            right.is_granted = True
            await picks_up(lambda: ran["Secret"].count("ns4") == 2)
            assert {kind: len(where) for kind, where in ran.items()} == {"ConfigMap": 5, "Service": 5, "Secret": 7}


async def test_bl_29_a_namespace_that_may_not_be_read_holds_back_whatever_needs_it(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    @asyncop.reconciler(
        ConfigMap, namespaces=["ns3", "ns4"], resync=0, sources=[asyncop.read(Secret, namespaces=["ns3", "ns4"])]
    )
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        ran.append((obj.metadata.namespace, len(ctx.store(Secret).list(obj.metadata.namespace))))

    with capture_logs():
        async with embedded(tmp_path) as world:
            right = Right(world)
            await world.namespaces("ns3", "ns4")
            for namespace in ("ns3", "ns4"):
                await world.create(f"/api/v1/namespaces/{namespace}/configmaps", "a")
                await world.create(f"/api/v1/namespaces/{namespace}/secrets", "a")
            async with world.operating(None, look):
                await until(lambda: bool(ran), "the other namespace works")
                await world.call("PATCH", "/api/v1/namespaces/ns4/configmaps/a", {"data": {"new": "x"}})
                await asyncio.sleep(60)
                assert ran == [("ns3", 1)], "a Secret that can't be seen is not taken for one that isn't there"
                right.is_granted = True
                await until(lambda: ("ns4", 1) in ran, "then it runs")


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "in a gap of the watch"])
async def test_bl_31_a_kind_that_goes_and_comes_back_is_told_once_and_picked_up(tmp_path: Path, is_seen: bool) -> None:
    ran: list[str] = []
    gone: list[str] = []
    maps: list[str] = []

    @asyncop.reconciler(Widget, resync=0)
    async def look(obj: Widget, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    @look.gone
    async def forget(last: Widget, ctx: asyncop.Context) -> None:
        gone.append(last.metadata.name)

    @asyncop.reconciler(ConfigMap, resync=0)
    async def look_too(obj: ConfigMap, ctx: asyncop.Context) -> None:
        maps.append(obj.metadata.name)

    with capture_logs() as logs:
        async with embedded(tmp_path) as world:
            await world.define_widgets()
            for name in "abc":
                await world.create(WIDGETS, name, {"apiVersion": "example.com/v1", "kind": "Widget"})
            async with world.operating("default", look, look_too):
                await until(lambda: sorted(ran) == ["a", "b", "c"] and world.server.open_watches == 2, "it works")
                await asyncio.sleep(300)  # a failure now is not one of the start
                told = len(logs)
                if not is_seen:
                    world.faults.fail_watches("widgets.example.com", 500)
                    await until(lambda: world.server.open_watches == 1, "its watch is away", step=0)
                await world.call("DELETE", f"{DEFINITIONS}/widgets.example.com")
                went = asyncio.get_running_loop().time()
                await until(lambda: sorted(gone) == ["a", "b", "c"], "the end of all three is told")
                assert asyncio.get_running_loop().time() - went < 15
                await world.create("/api/v1/namespaces/default/configmaps", "m")
                await until(lambda: maps == ["m"], "other kinds are not affected")

                await asyncio.sleep(120)
                tries = [asked for asked in world.asked if asked.resource == "widgets" and asked.at >= went]
                assert len(tries) <= 10
                lines = [line for line in logs[told:] if line["log_level"] in ("warning", "error")]
                missing = [line for line in lines if "404" in str(line.get("err"))]
                assert len(missing) == 1, "one line, not one each second"
                assert len(lines) == 1 + (not is_seen)

                await world.define_widgets()
                await world.create(WIDGETS, "new", {"apiVersion": "example.com/v1", "kind": "Widget"})
                await picks_up(lambda: "new" in ran)
                assert (sorted(gone), maps) == (["a", "b", "c"], ["m"])


async def test_bl_31_a_kind_that_is_missing_at_the_start_is_told_once_and_picked_up(tmp_path: Path) -> None:
    ran: list[str] = []

    @asyncop.reconciler(Widget, resync=0)
    async def look(obj: Widget, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    with capture_logs() as logs:
        async with embedded(tmp_path) as world, world.operating("default", look):
            await asyncio.sleep(180)
            assert len([line for line in logs if line["log_level"] in ("warning", "error")]) == 1
            await world.define_widgets()
            await world.create(WIDGETS, "new", {"apiVersion": "example.com/v1", "kind": "Widget"})
            await picks_up(lambda: ran == ["new"])
