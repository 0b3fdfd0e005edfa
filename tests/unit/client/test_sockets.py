"""A peer that vanishes without a word is noticed by the kernel, and what was cancelled isn't sent by it later."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
import uvloop

from asyncop.client import Transport
from asyncop.client.transport import PROBES, _socket
from tests.unit.client.conftest import connection_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY_BYTES = 1 << 20


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_sockets_ask_a_silent_peer_and_give_up_within_a_minute(family: socket.AddressFamily) -> None:
    with _socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("", 0))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for name, value in PROBES.items():
            if hasattr(socket, name):
                assert made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    assert PROBES["TCP_KEEPIDLE"] + PROBES["TCP_KEEPINTVL"] * PROBES["TCP_KEEPCNT"] <= 60


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A server that has taken nothing yet, and for which the client's kernel has to keep most of a large body."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(5)
        yield listener


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_a_cancelled_call_has_not_sent_never_arrives(
    deaf: socket.socket, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner, runner.run(begun_and_cancelled(deaf)) as server:
        assert received_until_the_end(server) < BODY_BYTES / 2


async def begun_and_cancelled(deaf: socket.socket) -> socket.socket:
    transport = Transport(connection_to(f"http://127.0.0.1:{deaf.getsockname()[1]}"), user_agent="test/1")
    call = asyncio.create_task(transport.request("PATCH", "/", body=b"x" * BODY_BYTES))
    server, _ = await asyncio.to_thread(deaf.accept)
    await asyncio.to_thread(server.recv, 1)  # it has begun
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await transport.aclose()
    return server


def received_until_the_end(server: socket.socket) -> int:
    server.settimeout(5)
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while chunk := server.recv(65536):
            count += len(chunk)
    return count
