"""Faults that people met with lists and watches. Time is virtual, HTTP is real."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

import asyncop
from tests.cases.embedded import TICK, Asked, World, embedded, metric, refused, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(resolution=TICK)]

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Story:
    """What a reconciler of ConfigMaps was told."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gone: list[str] = []

        @asyncop.reconciler(ConfigMap, resync=0)
        async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
            self.ran.append(obj.metadata.name)

        @look.gone
        async def forget(last: ConfigMap, ctx: asyncop.Context) -> None:
            self.gone.append(last.metadata.name)

        self.reconciler = look


async def expire_and_change_b_into_c(world: World) -> None:
    """ERROR 410 into the open watch; what changes after it falls into the gap."""
    world.faults.fail_watches("configmaps", 410)
    await until(lambda: not world.server.open_watches, "the watch has ended", step=0)
    await world.call("DELETE", f"{MAPS}/b")
    await world.create(MAPS, "c")
    world.faults.expire_versions("configmaps")


async def test_bl_01_expired_in_the_stream_and_then_as_a_status_ends_in_a_fresh_list(tmp_path: Path) -> None:
    story = Story()
    async with embedded(tmp_path) as world:
        await world.create(MAPS, "a")
        await world.create(MAPS, "b")
        async with world.operating("default", story.reconciler):
            await until(lambda: sorted(story.ran) == ["a", "b"] and world.count("watch", "configmaps") == 1, "synced")
            world.faults.answer(410, "configmaps", verb="watch", times=1)
            broke = asyncio.get_running_loop().time()
            await expire_and_change_b_into_c(world)
            assert world.count("list", "configmaps") == 1, "all that happened in the gap"
            await until(lambda: world.count("watch", "configmaps") == 3, "it watches again")
            await asyncio.sleep(120)
            assert (sorted(story.ran), story.gone) == (["a", "b", "c"], ["b"])
            lists = [each for each in world.asked if (each.verb, each.resource) == ("list", "configmaps")]
            assert len(lists) <= 3
            assert not any("resourceVersion" in each.query for each in lists)
            assert lists[1].at - broke >= 0.8, "a backoff before it lists again"


async def test_bl_01_a_list_that_expires_at_its_third_page_leaves_the_cache_as_it_was(tmp_path: Path) -> None:
    story = Story()
    async with embedded(tmp_path) as world:
        names = ["b", *(f"m-{number:04}" for number in range(1, 1200))]
        await world.create_many(MAPS, ({"metadata": {"name": name}} for name in names))
        expired: list[Asked] = []

        async def expire_third_page(asked: Asked) -> web.Response | None:
            lists = world.count("list", "configmaps", since)
            if (asked.verb, asked.resource, lists) == ("list", "configmaps", 3):
                expired.append(asked)
                return refused(410, "Expired", "The provided continue parameter is too old")
            return None

        since = float("inf")
        async with world.operating("default", story.reconciler) as manager:
            await until(lambda: len(story.ran) == 1200, "synced")
            world.instead(expire_third_page)
            since = asyncio.get_running_loop().time()
            await expire_and_change_b_into_c(world)
            await until(lambda: bool(expired), "the third page expired")
            [informer] = manager._operation.informers if manager._operation else []
            assert story.gone == []
            assert len(informer.store) >= 1200, "nothing that was known is missing"
            await until(lambda: story.gone == ["b"], "the next list tells of the deletion")
            await asyncio.sleep(60)
            assert (len(story.ran), story.ran[-1], story.gone) == (1201, "c", ["b"])
            assert "continue" not in [each for each in world.asked if each.verb == "list"][-3].query, "from its start"


CAUSE = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}


@pytest.mark.parametrize("details", [{"causes": [CAUSE], "retryAfterSeconds": 1}, {}], ids=["new server", "old server"])
async def test_bl_02_a_version_beyond_the_servers_is_forgotten_at_once(tmp_path: Path, details: dict[str, Any]) -> None:
    story = Story()
    async with embedded(tmp_path) as world:
        await world.create(MAPS, "a")
        beyond = str(world.server.resource_version + 1000)

        async def lag_behind(asked: Asked) -> web.Response | None:
            if asked.query.get("resourceVersion") != beyond:
                return None
            return refused(504, "Timeout", f"Timeout: Too large resource version: {beyond}, current: 263", **details)

        world.instead(lag_behind)
        async with world.operating("default", story.reconciler):
            await until(lambda: world.server.open_watches == 1, "it watches")
            bookmark = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": beyond}}
            world.faults.send_line(json.dumps({"type": "BOOKMARK", "object": bookmark}).encode())
            await asyncio.sleep(1)
            world.asked.clear()
            world.faults.end_watches()
            await until(lambda: len(world.asked) == 3, "it watches again")
            refused_watch, fresh, watch = world.asked
            assert (refused_watch.verb, refused_watch.query["resourceVersion"]) == ("watch", beyond)
            assert (fresh.verb, "resourceVersion" in fresh.query) == ("list", False)
            assert watch.query["resourceVersion"] == str(world.server.resource_version)
            await world.create(MAPS, "b")
            await until(lambda: "b" in story.ran, "what comes then is seen")
            await asyncio.sleep(120)
            assert len(world.asked) == 3
            assert story.ran == ["a", "b"]


class JobSpec(asyncop.Struct):
    parallelism: int
    template: dict[str, Any]


class Job(asyncop.Object, api_version="batch/v1", kind="Job"):
    spec: JobSpec


async def test_bl_04_a_nearly_empty_bookmark_only_moves_the_version(tmp_path: Path) -> None:
    ran: list[str] = []

    @asyncop.reconciler(Job)
    async def look(obj: Job, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    with capture_logs() as logs:
        async with embedded(tmp_path) as world:
            await world.create(JOBS, "a", {"spec": {"parallelism": 2, "template": template}})
            async with world.operating("default", look):
                await until(lambda: world.server.open_watches == 1 and ran == ["a"], "it watches")
                await world.create("/api/v1/namespaces/default/secrets", "moves-the-version")
                version = str(world.server.resource_version)
                bookmark = {"kind": "Job", "apiVersion": "batch/v1", "spec": {"template": {"spec": {}}}, "status": {}}
                bookmark["metadata"] = {"creationTimestamp": None, "resourceVersion": version}
                world.faults.send_line(json.dumps({"type": "BOOKMARK", "object": bookmark}).encode())
                await asyncio.sleep(5)
                world.faults.end_watches()
                await until(lambda: world.count("watch", "jobs") == 2, "it watches again")
                assert world.asked[-1].query["resourceVersion"] == version
                assert (world.count("list", "jobs"), ran) == (1, ["a"])
    assert [line["event"] for line in logs if line["log_level"] in ("warning", "error")] == []


class WidgetSpec(asyncop.Struct):
    size: int = 0


class Widget(asyncop.Object, api_version="example.com/v1", kind="Widget"):
    spec: WidgetSpec = WidgetSpec()


async def test_bl_04_one_object_with_a_wrong_type_is_told_once_and_the_others_are_reconciled(tmp_path: Path) -> None:
    ran: list[str] = []

    @asyncop.reconciler(Widget)
    async def look(obj: Widget, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    def told() -> int:
        return sum(line["event"] == "Object is unreadable" for line in logs)

    with capture_logs() as logs:
        async with embedded(tmp_path) as world:
            await world.define_widgets()
            sizes = {f"w-{number}": number for number in range(99)} | {"bad": "text"}
            await world.create_many(
                WIDGETS,
                (
                    {
                        "apiVersion": "example.com/v1",
                        "kind": "Widget",
                        "metadata": {"name": name},
                        "spec": {"size": size},
                    }
                    for name, size in sizes.items()
                ),
            )
            async with world.operating("default", look):
                await until(lambda: len(ran) == 99, "the others are reconciled")
                for number in range(3):
                    await world.call("PATCH", f"{WIDGETS}/bad", {"metadata": {"labels": {"n": str(number)}}})
                world.faults.fail_watches(status=410)
                await until(lambda: world.count("list", "widgets") == 2, "it was listed again")
                await asyncio.sleep(30)
                assert "bad" not in ran
                assert told() == 1
                assert metric("asyncop_objects_failing", controller="look", reason="unreadable") == 1
                events = (await world.call("GET", "/api/v1/namespaces/default/events"))["items"]
                assert [event["reason"] for event in events] == ["Unreadable"]
                await world.call("PATCH", f"{WIDGETS}/bad", {"spec": {"size": 3}})
                await until(lambda: "bad" in ran, "mended, it is reconciled")
                assert len(ran) == 100


@pytest.mark.parametrize(
    ("listed", "items", "later"),
    [("120", ["10", "99", "5"], ["125", "130"]), ("l-ist", ["i-1", "i-0", "i-2"], ["z-seen", "a-bookmark"])],
    ids=["numbers", "opaque"],
)
async def test_bl_05_a_watch_starts_at_the_lists_version_and_goes_on_from_what_the_stream_said(
    tmp_path: Path, listed: str, items: list[str], later: list[str]
) -> None:
    story = Story()

    def item(version: str) -> dict[str, Any]:
        metadata = {"name": f"at-{version}", "namespace": "default", "uid": version, "resourceVersion": version}
        return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}

    def line(kind: str, version: str, content: dict[str, Any]) -> bytes:
        return json.dumps({"type": kind, "object": content}).encode() + b"\n"

    changed = item(items[0])
    changed["metadata"]["resourceVersion"] = later[0]
    changed["data"] = {"new": "yes"}
    bookmark = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": later[1]}}
    streams = [b"", line("MODIFIED", later[0], changed), line("BOOKMARK", later[1], bookmark)]

    async def scripted(asked: Asked) -> web.Response | None:
        if asked.resource != "configmaps":
            return None
        if asked.verb == "list":
            body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": listed}}
            return web.json_response({**body, "items": [item(version) for version in items]})
        if not streams:
            await asyncio.Event().wait()
        return web.Response(body=streams.pop(0), content_type="application/json")

    async with embedded(tmp_path) as world:
        world.instead(scripted)
        async with world.operating("default", story.reconciler):
            await until(lambda: world.count("watch", "configmaps") == 4, "three streams have ended quietly")
            await asyncio.sleep(20)
            watched = [each.query["resourceVersion"] for each in world.asked if each.verb == "watch"]
            assert watched == [listed, listed, *later]
            assert world.count("list", "configmaps") == 1
            names = [f"at-{version}" for version in items]
            assert sorted(story.ran) == sorted([*names, names[0]]), "once each, and once more for the change"
            assert story.gone == []


async def test_bl_25_a_stream_that_went_silent_half_open_is_left_soon_after_its_own_timeout(tmp_path: Path) -> None:
    story = Story()
    async with embedded(tmp_path, bookmark_interval=60) as world:
        world.unheard = frozenset({"timeoutSeconds"})  # the server's promise, which it forgets
        async with world.operating("default", story.reconciler):
            await until(lambda: world.server.open_watches == 1, "it watches")
            [first] = [each for each in world.asked if each.verb == "watch"]
            await asyncio.sleep(200)
            for name in "abc":
                await world.create(MAPS, name)
            await until(lambda: len(story.ran) == 3, "three events came")
            seen = str(world.server.resource_version)
            world.faults.go_silent()
            await world.create(MAPS, "d")
            await until(lambda: "d" in story.ran, "the change in the silence is seen", step=5)
            [_, second] = [each for each in world.asked if each.verb == "watch"]
            late = second.at - first.at - int(first.query["timeoutSeconds"])
            assert 0 < late < 60, "the server had its time, and little more"
            assert second.query["resourceVersion"] == seen, "it goes on from where it was"
            assert (world.count("list", "configmaps"), story.ran) == (1, ["a", "b", "c", "d"])


async def test_bl_25_a_healthy_watch_may_be_silent_as_long_as_it_likes(tmp_path: Path) -> None:
    story = Story()
    with capture_logs() as logs:
        async with embedded(tmp_path, bookmark_interval=60) as world:
            await world.create(MAPS, "a")
            async with world.operating("default", story.reconciler):
                await until(lambda: story.ran == ["a"], "it works")
                await asyncio.sleep(299)
                assert (world.count("list", "configmaps"), world.count("watch", "configmaps")) == (1, 1)
                await asyncio.sleep(1800)
                assert world.count("list", "configmaps") == 1
                watches = [each for each in world.asked if each.verb == "watch"]
                for one, other in itertools.pairwise(watches):
                    assert other.at - one.at >= int(one.query["timeoutSeconds"]), "it had its time"
                assert story.ran == ["a"]
    assert [line["event"] for line in logs if line["log_level"] in ("warning", "error")] == []
