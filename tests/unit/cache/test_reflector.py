"""The reflector's state table, row by row, against scripted answers in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import asyncop
from asyncop.api.errors import AsyncopError, TransportError, api_error
from asyncop.cache.reflector import BackingOff, Listing, Reflector, Watching
from asyncop.cache.store import Store
from asyncop.client.wire import Codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    pass


Answer = bytes | AsyncopError


def obj(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}}


def page(version: int, *items: dict[str, Any], token: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(version), "continue": token}, "items": items}).encode()


def line(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


EXPIRED = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "too old"}
GONE = api_error(410, "Expired", "too old")
TOO_LARGE = api_error(504, "Timeout", "Too large resource version", causes=("ResourceVersionTooLarge",))
TOO_LARGE_OLD_SERVER = api_error(504, "Timeout", "Too large resource version: 363, current: 10")


class Script:
    """Answers lists and watches in the order given, and keeps what was asked.

    A watch that is a list of chunks lives for a while; one that is a tuple ends at once.
    """

    def __init__(self, *answers: Answer | list[bytes | AsyncopError] | tuple[bytes, ...]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.is_api = True

    async def is_answered_by_api(self) -> bool:
        return self.is_api

    async def list_page(self, params: Mapping[str, str]) -> bytes:
        self.asked.append({"list": "1", **params})
        answer = self.answers.pop(0)
        if isinstance(answer, AsyncopError):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    @contextlib.asynccontextmanager
    async def open_watch(self, params: Mapping[str, str], *, timeout: float) -> AsyncIterator[Any]:
        self.asked.append(dict(params))
        answer = self.answers.pop(0)
        if isinstance(answer, AsyncopError):
            raise answer
        assert isinstance(answer, (list, tuple))
        yield _Stream(list(answer), seconds=2 if isinstance(answer, list) else 0)


class _Stream:
    def __init__(self, chunks: list[bytes | AsyncopError], seconds: float) -> None:
        self._chunks, self._seconds = chunks, seconds

    async def chunk(self) -> bytes:
        await asyncio.sleep(self._seconds)  # virtual: a watch that lives for a while
        chunk = self._chunks.pop(0) if self._chunks else b""
        if isinstance(chunk, AsyncopError):
            raise chunk
        return chunk


class Observed:
    """What a reflector reports."""

    def __init__(self) -> None:
        self.synced, self.restarts, self.failures = 0, list[str](), list[str]()

    def on_synced(self) -> None:
        self.synced += 1

    def on_event(self) -> None:
        pass

    def on_failure(self, verb: str, error: Exception, delay: float) -> None:
        self.failures.append(f"{verb}: {error}")

    def on_restart(self, reason: str) -> None:
        self.restarts.append(reason)


class Setup:
    def __init__(self, *answers: Any) -> None:
        self.script, self.events = Script(*answers), Observed()
        self.store, writer = Store.create()
        self.deltas: list[tuple[str, str]] = []
        self.store.subscribe(
            lambda delta: self.deltas.append(("delete" if delta.new is None else "put", delta.request.name))
        )
        self.reflector = Reflector(self.script, writer, Codec((Pod,), keep_raw=False), self.events, None)

    async def play(self) -> None:
        """Step until every scripted answer has been used."""
        while self.script.answers:
            await self.reflector.step()

    def names(self) -> set[str]:
        return {request.name for request, _ in self.store.items()}


async def test_pages_are_followed_to_the_last_and_the_lists_version_starts_the_watch() -> None:
    world = Setup(page(120, obj("a", 10), obj("b", 99), token="t"), page(120, obj("c", 5)), [])
    await world.play()
    assert world.names() == {"a", "b", "c"}
    assert world.script.asked[1]["continue"] == "t"
    assert world.script.asked[2]["resourceVersion"] == "120", "the list's version, not an item's (BL-05)"
    assert world.events.synced == 1


async def test_a_watch_that_ends_goes_on_from_the_last_version_seen_on_it() -> None:
    world = Setup(page(120, obj("a", 10)), [line("MODIFIED", obj("a", 130))], [], [])
    await world.play()
    assert [asked["resourceVersion"] for asked in world.script.asked[1:]] == ["120", "130", "130"]
    assert world.deltas == [("put", "a"), ("put", "a")], "nothing is replayed"


async def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "200"}, "spec": {}}
    world = Setup(page(120), [line("BOOKMARK", bookmark)], [])
    await world.play()
    assert world.script.asked[-1]["resourceVersion"] == "200"
    assert world.deltas == []


@pytest.mark.parametrize("gone", [[line("ERROR", EXPIRED)], GONE], ids=["in the stream", "as status"])
async def test_after_410_everything_is_listed_anew_and_the_gap_is_delivered(gone: Any) -> None:
    world = Setup(page(100, obj("a", 1), obj("b", 2)), gone, page(150, obj("a", 1), obj("c", 140)), [])
    await world.play()
    assert world.names() == {"a", "c"}
    assert world.deltas[2:] == [("put", "c"), ("delete", "b")], "one deletion, one addition, nothing for a"
    assert "resourceVersion" not in world.script.asked[2]
    assert sum("list" in asked for asked in world.script.asked) == 2


async def test_410_on_a_later_page_throws_away_what_the_list_said_of_missing_objects() -> None:
    world = Setup(
        page(100, obj("a", 1), obj("b", 2)),
        GONE,
        page(150, obj("a", 1), token="t"),
        GONE,
        page(160, obj("a", 1), obj("b", 2)),
        [],
    )
    await world.play()
    assert world.names() == {"a", "b"}
    assert ("delete", "b") not in world.deltas


@pytest.mark.parametrize("error", [TOO_LARGE, TOO_LARGE_OLD_SERVER], ids=["with cause", "older server"])
async def test_a_version_the_server_does_not_know_yet_is_forgotten(error: AsyncopError) -> None:
    world = Setup(page(363), error, page(10, obj("a", 3)), [])
    await world.play()
    assert world.names() == {"a"}
    assert len(world.script.asked) == 4, "one failed watch, one list, one watch"
    assert world.script.asked[-1]["resourceVersion"] == "10"


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_refused_watch_is_opened_again_from_the_same_version_after_a_pause(status: int) -> None:
    world = Setup(page(100), api_error(status), [])
    await world.play()
    assert [asked.get("resourceVersion") for asked in world.script.asked] == [None, "100", "100"]
    assert world.events.restarts[0] == str(status)


async def test_a_kind_that_two_lists_could_not_find_has_no_objects_any_more() -> None:
    missing = api_error(404, "NotFound", "the server could not find the requested resource")
    world = Setup(page(100, obj("a", 1)), missing, missing, missing, page(200, obj("a", 150, uid="other")), [])
    for known in (*[{"a"}] * 5, set()):  # list, watch and pause, list and pause, list
        await world.reflector.step()
        assert world.names() == known
    assert "list" in world.script.asked[-1]
    await world.play()
    assert world.names() == {"a"}
    assert world.events.restarts[0] == "404"


async def test_a_404_that_does_not_come_from_an_api_server_changes_nothing() -> None:
    world = Setup(page(100, obj("a", 1)), *[api_error(404)] * 5, page(100, obj("a", 1)), [])
    world.script.is_api = False
    await world.play()
    assert world.deltas == [("put", "a")]


async def test_a_server_restored_from_a_backup_counts_though_its_versions_are_older() -> None:
    world = Setup(page(300, obj("a", 290), obj("b", 295)), TOO_LARGE, page(200, obj("a", 150)), [])
    await world.play()
    assert [(request.name, record.metadata.resource_version) for request, record in world.store.items()] == [
        ("a", "150")
    ]


async def test_a_watch_that_outlives_the_time_it_asked_for_is_left() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "101"}})
    world = Setup(page(100), [bookmark] * 1000, [])
    started = asyncio.get_running_loop().time()
    await world.play()
    assert 300 < asyncio.get_running_loop().time() - started < 640
    assert world.script.asked[-1]["resourceVersion"] == "101"


async def test_pages_have_as_many_objects_as_fit_into_eight_mebibytes() -> None:
    small = [obj(f"small-{number}", number) for number in range(1, 51)]
    large = [{**obj(f"large-{number}", number), "data": "x" * (1 << 20)} for number in range(1, 21)]
    world = Setup(page(100, *small, token="s"), page(100, *large, token="l"), page(100, *small), [])
    await world.play()
    assert [asked.get("limit") for asked in world.script.asked] == ["50", "500", "7", None]


async def test_a_list_that_fails_keeps_the_old_store_and_starts_over() -> None:
    world = Setup(page(100, obj("a", 1)), GONE, TransportError("reset"), page(120, obj("a", 1)), [])
    await world.play()
    assert world.names() == {"a"}
    assert world.events.failures == [f"watch: {GONE}", "list: reset"]


async def test_pauses_grow_and_never_turn_into_a_busy_loop() -> None:
    world = Setup(*[TransportError("refused")] * 8)
    started = asyncio.get_running_loop().time()
    await world.play()
    assert asyncio.get_running_loop().time() - started > 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 25.6


async def test_the_server_may_ask_for_a_longer_pause() -> None:
    world = Setup(api_error(429, retry_after=77.0))
    await world.play()
    state = world.reflector.state
    assert isinstance(state, BackingOff)
    assert 77 < state.delay < 77 + 2 * 0.8 + 0.1, "what it asks, and our own jittered delay"


async def test_a_stream_that_is_cut_goes_on_where_it_was() -> None:
    world = Setup(page(100), [line("ADDED", obj("a", 101)), TransportError("reset")], [])
    await world.play()
    assert world.script.asked[-1]["resourceVersion"] == "101"
    assert world.names() == {"a"}


async def test_a_cut_in_mid_line_loses_only_that_line() -> None:
    half = line("ADDED", obj("b", 102))[:20]
    world = Setup(page(100), [line("ADDED", obj("a", 101)) + half, b""], [line("ADDED", obj("b", 102))], [])
    await world.play()
    assert world.script.asked[2]["resourceVersion"] == "101"
    assert world.names() == {"a", "b"}


async def test_rubbish_in_the_stream_leads_to_a_fresh_list() -> None:
    world = Setup(page(100), [b"<html>\n"], page(130), [])
    await world.play()
    assert "list" in world.script.asked[2]


async def test_a_deletion_takes_the_object_out() -> None:
    world = Setup(page(100, obj("a", 1)), [line("DELETED", obj("a", 101))], [])
    await world.play()
    assert world.names() == set()
    assert world.deltas == [("put", "a"), ("delete", "a")]


async def test_the_first_list_is_backlog_and_later_lists_are_news() -> None:
    world = Setup(page(100, obj("a", 1)), GONE, page(120, obj("a", 1), obj("b", 110)), [])
    initial: list[bool] = []
    world.store.subscribe(lambda delta: initial.append(delta.is_initial))
    await world.play()
    assert initial == [True, False]


async def test_states_are_shown() -> None:
    world = Setup(page(100))
    assert isinstance(world.reflector.state, Listing)
    await world.play()
    assert world.reflector.state == Watching("100")


async def test_a_server_cannot_silence_a_watch_for_a_day() -> None:
    world = Setup(api_error(503, retry_after=86_400.0))
    await world.play()
    state = world.reflector.state
    assert isinstance(state, BackingOff)
    assert state.delay <= 300 + 2 * 30, "the most it may ask, and the longest jittered delay of our own"


@pytest.mark.parametrize(
    "rubbish",
    [
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}',
        b'{"metadata":{},"items":[]}',
    ],
    ids=["status", "no version"],
)
async def test_an_answer_that_is_no_list_never_empties_the_store(rubbish: bytes) -> None:
    world = Setup(page(5, obj("a", 1)), GONE, rubbish)
    await world.play()
    assert world.names() == {"a"}
    assert world.events.failures[-1] == "list: the server's list has no resourceVersion"


async def test_a_list_that_never_ends_is_given_up_and_begun_anew() -> None:
    world = Setup(page(5, obj("a", 1), token="t"), page(5, obj("b", 2), token="t"), page(5, obj("c", 3)))
    await world.play()
    assert [asked.get("continue") for asked in world.script.asked] == [None, "t", None]
    assert len(world.events.failures) == 1


@pytest.mark.parametrize(
    "rubbish",
    [
        line("BOOKMARK", {"metadata": {}}),
        line("MODIFIED", {"metadata": {"name": "a", "namespace": "ns"}}),
        line("MODIFIED", {"metadata": {"resourceVersion": "9"}}),
    ],
    ids=["bookmark", "no version", "no name"],
)
async def test_a_line_without_name_or_version_leads_to_a_new_list(rubbish: bytes) -> None:
    world = Setup(page(5, obj("a", 1)), [rubbish], page(6, obj("a", 1)))
    await world.play()
    assert world.names() == {"a"}
    assert world.script.asked[-1].get("list") == "1"
    assert world.events.restarts == ["decode"]


async def test_a_watch_that_ends_at_once_is_told_as_a_failure() -> None:
    world = Setup(page(5), (), ())
    await world.play()
    assert world.events.failures == ["watch: the watch ended as soon as it had begun"] * 2
    assert isinstance(world.reflector.state, BackingOff)
