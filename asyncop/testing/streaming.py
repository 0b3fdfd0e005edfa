"""The connections that watches hold open: writing lines, bookmarks, ends, and what faults do to them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, cast

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncop.testing.storage import Clock
    from asyncop.testing.watch import Watcher

BOOKMARK_INTERVAL = 60.0
"""Seconds between bookmarks, as kube-apiserver has it (about a minute)."""


class Stream:
    """One open watch. Faults act on it through its attributes; its own task does the writing."""

    def __init__(self, watcher: Watcher, transport: asyncio.Transport | None) -> None:
        self.watcher, self.transport = watcher, transport
        self.is_silent = False
        """The connection stays open and nothing is ever written to it again."""
        self.cut_next = False
        """The next write ends in the middle of a line, with the connection."""

    def reset(self) -> None:
        """Drop the connection at once, without the end of the stream."""
        reset_connection(self.transport)


def reset_connection(transport: asyncio.BaseTransport | None) -> None:
    """End a connection by RST: the peer gets ECONNRESET, not an end of data."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cast("asyncio.Transport", transport).abort()  # uvloop's transports have no base class in common with asyncio's


class Streams:
    """All open watches of a server."""

    def __init__(self, clock: Clock, bookmark_interval: float) -> None:
        self._clock, self._bookmark_interval = clock, bookmark_interval
        self.open: set[Stream] = set()
        self.is_holding = False
        """New watches hold their events back too."""

    @contextlib.contextmanager
    def _opened(self, watcher: Watcher, transport: asyncio.Transport | None) -> Iterator[Stream]:
        stream = Stream(watcher, transport)
        self.open.add(stream)
        try:
            yield stream
        finally:
            self.open.discard(stream)
            watcher.close()

    async def serve(self, request: web.BaseRequest, watcher: Watcher) -> web.StreamResponse:
        """Answer a watch until it ends.

        Raises:
            RefusedError: before the first byte, for parameters that can't be.
        """
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with self._opened(watcher, request.transport) as stream:
            watcher.held = self.is_holding
            watcher.start(self._clock.now)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # the client is gone: nothing is left to do for it
                await self._write(response, stream)
        return response

    async def _write(self, response: web.StreamResponse, stream: Stream) -> None:
        loop, watcher = asyncio.get_running_loop(), stream.watcher
        end = loop.time() + watcher.query.timeout
        bookmark = loop.time() + self._bookmark_interval
        while True:
            lines = watcher.take()
            if stream.is_silent:
                lines = b""
            if lines and stream.cut_next:
                await response.write(lines[: max(len(lines) // 2, 1)])
                if stream.transport is not None:
                    stream.transport.close()  # what was written still goes out
                return
            if lines:
                await response.write(lines)
            if (watcher.ended or loop.time() >= end) and not stream.is_silent:
                return
            due = min(end, bookmark) if watcher.query.bookmarks else end
            await _wait(watcher.wake, due - loop.time())
            if watcher.query.bookmarks and loop.time() >= bookmark:
                bookmark = loop.time() + self._bookmark_interval
                self._bookmark(watcher)

    def _bookmark(self, watcher: Watcher) -> None:
        if not watcher.held:
            watcher.bookmark(self._clock.now)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await event.wait()
