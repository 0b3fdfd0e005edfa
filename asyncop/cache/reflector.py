"""One list/watch loop that keeps one scope of one store equal to the server, for ever.

A state machine with one `step()`:

    Listing(token, seen)            one page; the last one leads to Watching
    Watching(version)               one watch connection until it ends
    BackingOff(delay, then)         a pause after a failure, then the state that failed

| what happens                                   | next state                                             |
|------------------------------------------------|--------------------------------------------------------|
| page with a continue token                     | Listing the next page                                  |
| last page                                      | what was not seen is removed, Watching its version     |
| watch ends by itself                           | Watching from the last version seen, at once           |
| watch ends by itself within a second           | BackingOff, then the same                              |
| 410, as status or as ERROR line                | BackingOff, then Listing from the start                |
| resource version too large (504)               | BackingOff, then Listing, which asks for no version    |
| the watch outlives the time it asked for       | BackingOff, then Watching: the server is lost          |
| 404 of a watch: the kind is gone               | BackingOff, then Listing                               |
| 404 of two lists in a row, and the API lives   | everything is removed; BackingOff, then Listing        |
| refused, reset, 401, 403, 429, 5xx             | BackingOff, then the same again (a list starts over)   |
| a page or line that isn't JSON                 | BackingOff, then Listing from the start                |

Memory while listing is bounded: a page has about as many objects as fit into 8 MiB, going by the page before it.

Versions come from the list's own metadata and from the stream, never from list items. A list is consistent, paged, and
each page is applied before the next is asked for: objects only go forward, so a list that breaks off half-way does no
harm; only its knowledge of what is *missing* is thrown away. A server whose list is of an older version than was seen
before has been restored from a backup: what it has counts, though it looks older than what is here.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from asyncop.aio.backoff import Backoff, BackoffPolicy
from asyncop.api.errors import ApiError, AsyncopError, DecodeError, GoneError, NotFoundError, TransportError
from asyncop.api.request import Request
from asyncop.client.wire import Codec, LineSplitter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from asyncop.cache.store import StoreWriter
    from asyncop.client.wire import Page

log = structlog.get_logger("asyncop.cache")

PAGE_SIZE = 500  # client-go's pager
FIRST_PAGE_SIZE = 50  # while it isn't known how large the objects are: 500 Secrets may be 500 MB
PAGE_BYTES = 8 << 20  # a page of larger objects has fewer of them
WATCH_TIMEOUT = (300.0, 600.0)  # seconds asked of the server, spread as client-go's reflector does
SILENCE_MARGIN = 30.0  # a stream that outlives its own timeout by this has lost its server
BACKOFF = BackoffPolicy(initial=0.8, maximum=30.0, jitter=1.0)  # client-go's reflector
BACKOFF_RESET = 120.0
RETRY_AFTER_LIMIT = 300.0  # seconds; a proxy that asks for a day must not keep a cache stale for one
MISSING_LISTS = 2  # 404s in a row, a backoff apart, that say a kind is gone
SHORT_WATCH = 1.0  # a watch that ends sooner counts as a failure, or a broken proxy would make a busy loop


class ByteStream(Protocol):
    """An open watch."""

    async def chunk(self) -> bytes:
        """The next bytes; empty at the end."""
        ...


class ListWatch(Protocol):
    """The calls a reflector makes, for one resource and scope."""

    async def list_page(self, params: Mapping[str, str]) -> bytes:
        """One page of the list."""
        ...

    def open_watch(self, params: Mapping[str, str], *, timeout: float) -> AbstractAsyncContextManager[ByteStream]:
        """A watch; `timeout` bounds the wait for its first answer, in seconds."""
        ...

    async def is_answered_by_api(self) -> bool:
        """Whether it is an API server that answers, not something else before it that says 404 to everything."""
        ...


class ReflectorEvents(Protocol):
    """What a reflector tells besides the store."""

    def on_synced(self) -> None:
        """A complete list has been applied."""

    def on_event(self) -> None:
        """The watch delivered something, if only a bookmark."""

    def on_failure(self, verb: str, error: Exception, delay: float) -> None:
        """The `verb`, list or watch, failed; it is tried again in `delay` seconds."""

    def on_restart(self, reason: str) -> None:
        """A watch ended and is opened again, or everything is listed anew."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Asking for one page."""

    token: str = ""
    seen: set[Request] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Watching:
    """Following changes after a version."""

    version: str


@dataclass(frozen=True, slots=True)
class BackingOff:
    """Pausing after a failure."""

    delay: float
    then: Listing | Watching


State = Listing | Watching | BackingOff


class Reflector:
    """Keeps one scope (a namespace, or None for all) of the writer's store equal to the server."""

    def __init__(
        self, source: ListWatch, writer: StoreWriter, codec: Codec, events: ReflectorEvents, namespace: str | None
    ) -> None:
        self._source, self._writer, self._codec, self._events = source, writer, codec, events
        self._namespace = namespace
        self._backoff = Backoff(BACKOFF, reset_after=BACKOFF_RESET)
        self._page_size = FIRST_PAGE_SIZE
        self._missing = 0  # lists in a row that said the kind isn't served
        self._has_synced = False  # what a later list finds is news that fell into a gap, not backlog
        self.state: State = Listing()

    async def run(self) -> None:
        """Reflect until cancelled; errors of the server never end it."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Do one page, one watch or one pause, and set the next state."""
        match self.state:
            case Listing() as state:
                self.state = await self._list(state)
            case Watching() as state:
                self.state = await self._watch(state)
            case BackingOff(delay, then):
                await asyncio.sleep(delay)
                self.state = then

    async def _list(self, state: Listing) -> State:
        params = {"limit": str(self._page_size)} | ({"continue": state.token} if state.token else {})
        try:
            data = await self._source.list_page(params)
            page = self._codec.decode_page(data)
            _check_page(page, state.token)
        except AsyncopError as error:
            await self._note_missing(error)
            return self._after_failure(error, Listing())
        self._missing = 0
        self._page_size = _fitting(len(page.records), len(data))
        is_restored = self._writer.is_beyond(page.resource_version, self._namespace)
        for record in page.records:
            state.seen.add(Request(record.metadata.namespace, record.metadata.name))
            self._writer.put(record, is_initial=not self._has_synced, is_restored=is_restored)
        if page.continue_token:
            return Listing(page.continue_token, state.seen)
        self._writer.retain(state.seen, self._namespace, "" if is_restored else page.resource_version)
        if is_restored:
            self._writer.restarted(self._namespace)
        self._writer.reached(page.resource_version, self._namespace)
        self._has_synced = True
        self._events.on_synced()
        return Watching(page.resource_version)

    async def _note_missing(self, error: AsyncopError) -> None:
        """Remove everything once it is sure that the kind isn't served any more: its objects went with its definition.

        One 404 may come from a server that is just starting, or from a load balancer that has none.
        """
        self._missing = self._missing + 1 if isinstance(error, NotFoundError) else 0
        if self._missing == MISSING_LISTS and not await self._source.is_answered_by_api():
            self._missing = 0
        if self._missing == MISSING_LISTS:
            self._writer.retain(set(), self._namespace, "")

    async def _watch(self, state: Watching) -> State:
        timeout = random.uniform(*WATCH_TIMEOUT)
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": state.version,
            "timeoutSeconds": str(int(timeout)),
        }
        version = state.version
        loop = asyncio.get_running_loop()
        started = loop.time()
        splitter = LineSplitter()
        try:
            async with (
                asyncio.timeout(timeout + SILENCE_MARGIN),
                self._source.open_watch(params, timeout=SILENCE_MARGIN) as stream,
            ):
                while chunk := await stream.chunk():
                    for line in splitter.feed(chunk):
                        version = self._apply(line)
                    self._events.on_event()
        except TimeoutError:
            lost = TransportError(f"the watch outlived the {timeout:.0f} s that it asked for: its server is lost")
            return self._after_failure(lost, Watching(version))
        except AsyncopError as error:
            return self._after_failure(error, Watching(version))
        if loop.time() - started < SHORT_WATCH:
            return self._after_failure(TransportError("the watch ended as soon as it had begun"), Watching(version))
        self._events.on_restart("closed")
        return Watching(version)

    def _apply(self, line: bytes) -> str:
        """Enter one line into the store; returns the version it brings the watch to."""
        kind, record = self._codec.decode_line(line)
        version = record.metadata.resource_version
        if not version or not (record.metadata.name or kind == "BOOKMARK"):
            raise DecodeError("the server sent a watch line without a name or version")
        if kind == "DELETED":
            self._writer.remove(record.metadata)
        elif kind != "BOOKMARK":
            self._writer.put(record)
        self._writer.reached(version, self._namespace)
        return version

    def _after_failure(self, error: AsyncopError, again: Listing | Watching) -> State:
        now = asyncio.get_running_loop().time()
        delay = self._backoff.next(now)
        if isinstance(error, ApiError) and error.retry_after:
            delay += min(error.retry_after, RETRY_AFTER_LIMIT)  # our own delay spreads those who were sent away
        verb = "list" if isinstance(again, Listing) else "watch"
        if _needs_relist(error):
            again = Listing()
        self._events.on_restart(_restart_reason(error))
        self._events.on_failure(verb, error, delay)
        return BackingOff(delay, again)


def _fitting(count: int, size: int) -> int:
    """How many objects the next page may have, after one with so many in so many bytes."""
    return max(1, min(PAGE_SIZE, PAGE_BYTES * count // size)) if count else FIRST_PAGE_SIZE


def _check_page(page: Page, asked: str) -> None:
    """Raise DecodeError for what can't be a page of a list, e.g. a Status: it would empty the store, or never end."""
    if not page.resource_version:
        raise DecodeError("the server's list has no resourceVersion")
    if page.continue_token and page.continue_token == asked:
        raise DecodeError("the server sends the same page of its list again and again")


def _needs_relist(error: AsyncopError) -> bool:
    """Whether the version we hold is of no more use: expired, beyond what the server knows, of a kind that is gone."""
    if isinstance(error, (GoneError, NotFoundError, DecodeError)):
        return True
    if not isinstance(error, ApiError):
        return False
    return "ResourceVersionTooLarge" in error.causes or "Too large resource version" in error.message


def _restart_reason(error: AsyncopError) -> str:
    if isinstance(error, DecodeError):
        return "decode"
    if isinstance(error, ApiError) and not isinstance(error, NotFoundError) and _needs_relist(error):
        return "expired"
    return str(error.status) if isinstance(error, ApiError) else "transport"
