"""Streams over a real connection, and what cancelling and closing leave behind: nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from asyncop.api.errors import GoneError, TransportError
from tests.unit.client.server import LONG, Answer, Server, hang_up, lines, never, ok, status

if TYPE_CHECKING:
    from asyncop.client import Transport

pytestmark = pytest.mark.asyncio


async def test_a_stream_gives_chunks_as_they_come_and_nothing_at_the_end(server: Server, transport: Transport) -> None:
    more = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        await more.wait()
        return web.Response()

    server.then(lines(b"one\n", end=wait))
    async with transport.stream("/x", params={"watch": "true"}, idle=LONG) as stream:
        assert await stream.chunk() == b"one\n"
        more.set()
        assert await stream.chunk() == b""
        assert await stream.chunk() == b""


async def test_a_line_of_many_megabytes_comes_through(server: Server, transport: Transport) -> None:
    line = b"x" * (9 << 20) + b"\n"
    server.then(lines(line))
    size = 0
    async with transport.stream("/x", idle=LONG) as stream:
        while chunk := await stream.chunk():
            size += len(chunk)
    assert size == len(line)


async def test_a_failure_of_a_stream_is_raised_on_entering(server: Server, transport: Transport) -> None:
    server.then(status(410, "Expired", "too old resource version"))
    with pytest.raises(GoneError, match="too old"):
        async with transport.stream("/x"):
            pytest.fail("entered")


async def test_a_stream_that_does_not_begin_fails_in_time(server: Server, transport: Transport) -> None:
    server.then(never)
    async with asyncio.timeout(LONG):
        with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
            async with transport.stream("/x", timeout=0.05):
                pytest.fail("entered")


async def test_silence_beyond_the_idle_limit_is_a_transport_error(server: Server, transport: Transport) -> None:
    server.then(lines(b"one\n", end=never))
    async with asyncio.timeout(LONG), transport.stream("/x", idle=0.05) as stream:
        assert await stream.chunk() == b"one\n"
        with pytest.raises(TransportError, match=r"fell silent for 0\.05 s"):
            await stream.chunk()


async def test_a_stream_that_is_cut_is_a_transport_error(server: Server, transport: Transport) -> None:
    server.then(lines(b"one\n", end=hang_up))
    with pytest.raises(TransportError, match=r"cut short|reset|disconnect"):  # noqa: PT012 - whichever read it is
        async with transport.stream("/x", idle=LONG) as stream:
            while await stream.chunk():
                pass


async def test_an_error_of_the_one_who_reads_is_left_alone(server: Server, transport: Transport) -> None:
    server.then(lines(b"one\n", end=never))
    with pytest.raises(OSError, match="mine"):
        async with transport.stream("/x", idle=LONG):
            raise OSError("mine")


async def test_streams_do_not_starve_calls(server: Server, transport: Transport) -> None:
    server.routes["/watch"] = lines(b"one\n", end=never)
    server.routes["/call"] = ok(b"there")
    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        is_open = asyncio.Semaphore(0)

        async def watch() -> None:
            async with transport.stream("/watch", idle=LONG) as stream:
                await stream.chunk()
                is_open.release()
                await stream.chunk()

        tasks = [group.create_task(watch()) for _ in range(100)]
        for _ in tasks:
            await is_open.acquire()
        assert await transport.request("GET", "/call") == b"there"
        for task in tasks:
            task.cancel()


def until_closed(is_asked: asyncio.Event, is_closed: asyncio.Event) -> Answer:
    """Tell when the request is there and when the client has closed its connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_asked.set()
        try:
            return await never(request)
        finally:
            is_closed.set()

    return answer


async def test_a_cancelled_call_closes_its_connection(server: Server, transport: Transport) -> None:
    is_asked, is_closed = asyncio.Event(), asyncio.Event()
    server.then(until_closed(is_asked, is_closed))
    call = asyncio.create_task(transport.request("GET", "/x"))
    await is_asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(LONG):
        await is_closed.wait()


async def test_leaving_a_stream_closes_its_connection(server: Server, transport: Transport) -> None:
    is_closed = asyncio.Event()
    server.then(lines(b"one\n", end=until_closed(asyncio.Event(), is_closed)))
    async with transport.stream("/x", idle=LONG) as stream:
        await stream.chunk()
    async with asyncio.timeout(LONG):
        await is_closed.wait()


async def test_cancelling_the_reader_of_a_stream_is_not_swallowed(server: Server, transport: Transport) -> None:
    server.then(lines(b"one\n", end=never))
    is_open = asyncio.Event()

    async def read() -> None:
        async with transport.stream("/x", idle=LONG) as stream:
            while await stream.chunk():
                is_open.set()

    reader = asyncio.create_task(read())
    await is_open.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_a_closed_transport_refuses_and_closes_twice(server: Server, transport: Transport) -> None:
    server.then(ok())
    await transport.request("GET", "/x")
    await transport.aclose()
    await transport.aclose()
    with pytest.raises(TransportError, match="is closed"):
        await transport.request("GET", "/x")
    with pytest.raises(TransportError, match="is closed"):
        async with transport.stream("/x"):
            pytest.fail("entered")


async def test_closing_ends_a_call_that_is_under_way(server: Server, transport: Transport) -> None:
    is_asked = asyncio.Event()
    server.then(until_closed(is_asked, asyncio.Event()))
    call = asyncio.create_task(transport.request("POST", "/x"))
    await is_asked.wait()
    await transport.aclose()
    async with asyncio.timeout(LONG):
        with pytest.raises(TransportError):
            await call
