"""Waiting for the API server: what counts as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from aiohttp import web

from asyncop.client import Client, Transport
from asyncop.manager.reach import ApiUnreachableError, reach
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Answer, Server, ok, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    transport = Transport(connection_to(server.url), user_agent="test/1")
    yield Client(transport)
    await transport.aclose()


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://login.example/"})


@pytest.mark.parametrize(
    "answer",
    [ok(b'{"gitVersion":"v1.36.3"}'), status(403, "Forbidden", "no"), status(429, "TooManyRequests", "busy")],
    ids=["version", "forbidden", "busy"],
)
async def test_an_answer_of_an_api_server_is_enough(server: Server, client: Client, answer: Answer) -> None:
    server.routes["/version"] = answer

    await reach(client, timeout=0)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ok(b"<html>log in</html>"), "answers, but not as an API server does"),
        (ok(b"[]"), "answers, but not as an API server does"),
        (redirect, "redirected to http://login.example/"),
        (status(404, "", "nothing here"), "404"),
        (status(401, "Unauthorized", "who are you"), "who are you"),
        (status(500, "InternalError", "oops"), "oops"),
    ],
    ids=["html", "list", "redirect", "not found", "unauthorized", "error"],
)
async def test_somebody_else_at_that_address_is_no_api_server(
    server: Server, client: Client, answer: Answer, says: str
) -> None:
    server.routes["/version"] = answer

    with pytest.raises(ApiUnreachableError, match=says):
        await reach(client, timeout=0)
