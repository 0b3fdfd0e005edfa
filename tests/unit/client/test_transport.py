"""Calls over a real connection: what is sent, the time limit, errors, retries."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from asyncop.api.errors import ConflictError, NotFoundError, ServerError, TooManyRequestsError, TransportError
from asyncop.client import Transport
from asyncop.client.retry import READ_TRIES
from asyncop.metrics import render
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import LONG, Answer, Server, hang_up, lines, never, ok, status

pytestmark = pytest.mark.asyncio


async def test_a_call_sends_what_it_is_given_and_returns_the_body(server: Server, transport: Transport) -> None:
    server.then(ok(b"abc"))
    data = await transport.request("POST", "/apis/x/v1/things", params={"a": "1,2=3&4"}, body=b"{}", accept="text/x")
    assert data == b"abc"
    (request,) = server.received
    assert (request.method, request.path, request.body) == ("POST", "/apis/x/v1/things", b"{}")
    assert request.query == {"a": "1,2=3&4"}
    assert request.headers["Accept"] == "text/x"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == "test/1"
    assert request.headers["Accept-Encoding"] == "identity"


async def test_the_path_of_the_servers_url_and_a_query_in_the_path_are_kept(server: Server) -> None:
    server.then(ok())
    transport = Transport(connection_to(f"{server.url}/k8s/clusters/c-1"), user_agent="test/1")
    await transport.request("GET", "/api/v1/pods?watch=false", params=[("limit", "5")])
    await transport.aclose()
    assert server.received[0].path == "/k8s/clusters/c-1/api/v1/pods"
    assert server.received[0].query == {"watch": "false", "limit": "5"}


async def test_a_failure_becomes_the_error_of_its_status(server: Server, transport: Transport) -> None:
    server.then(status(404, "NotFound", 'pods "a" not found'))
    with pytest.raises(NotFoundError, match='pods "a" not found') as caught:
        await transport.request("GET", "/x")
    assert caught.value.reason == "NotFound"


async def test_a_failure_in_plain_text_keeps_its_text(server: Server, transport: Transport) -> None:
    async def text(request: web.Request) -> web.StreamResponse:
        return web.Response(status=409, text="no, because\n")

    server.then(text)
    with pytest.raises(ConflictError, match="no, because"):
        await transport.request("POST", "/x", body=b"{}")


async def test_a_redirect_is_not_followed_but_named(server: Server, transport: Transport) -> None:
    async def login(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://login.example/"})

    server.then(login)
    with pytest.raises(Exception, match=r"redirected to http://login\.example/"):
        await transport.request("GET", "/x")
    assert len(server.received) == 1


async def test_an_answer_that_does_not_come_is_a_transport_error_in_time(server: Server, transport: Transport) -> None:
    server.then(never)
    async with asyncio.timeout(LONG):
        with pytest.raises(TransportError, match=r"GET /x at 127\.0\.0\.1:\d+: no answer within 0\.05 s"):
            await transport.request("GET", "/x", timeout=0.05)


async def test_a_body_that_stops_half_way_is_bounded_too(server: Server, transport: Transport) -> None:
    server.then(lines(b"half", end=never))
    async with asyncio.timeout(LONG):
        with pytest.raises(TransportError, match="no answer within"):
            await transport.request("GET", "/x", timeout=0.05)


async def test_an_unreachable_server_is_named_with_the_reason() -> None:
    transport = Transport(connection_to(f"http://127.0.0.1:{unused_port()}"), user_agent="test/1")
    with pytest.raises(TransportError, match=r"GET /version at 127\.0\.0\.1:\d+: Connection refused"):
        await transport.request("GET", "/version", timeout=0.05)
    await transport.aclose()


@pytest.mark.slow
async def test_a_name_that_does_not_resolve_is_told() -> None:
    transport = Transport(connection_to("http://nowhere.invalid:1"), user_agent="test/1")
    with pytest.raises(TransportError, match=r"GET /version at nowhere\.invalid:1: .*(known|resolution|DNS|address)"):
        await transport.request("GET", "/version", timeout=5)
    await transport.aclose()


async def test_requests_are_counted_with_their_outcome(server: Server, transport: Transport) -> None:
    server.then(status(404), hang_up)
    with pytest.raises(NotFoundError):
        await transport.request("PUT", "/x", body=b"")
    with pytest.raises(TransportError):
        await transport.request("PUT", "/x", body=b"")
    text = render()[0].decode()
    counted = [line for line in text.splitlines() if line.startswith("rest_client_requests_total") and "PUT" in line]
    mine = {code for code in ("404", "<error>") for line in counted if code in line and transport.host in line}
    assert mine == {"404", "<error>"}


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_read_is_tried_again_after_a_passing_failure(server: Server, transport: Transport, code: int) -> None:
    server.then(status(code), ok(b"there"))
    assert await transport.request("GET", "/x") == b"there"


@pytest.mark.slow
async def test_a_read_is_given_up_after_some_tries(server: Server, transport: Transport) -> None:
    server.routes["/x"] = status(503, message="down")
    with pytest.raises(ServerError, match="down"):
        await transport.request("GET", "/x")
    assert len(server.received) == READ_TRIES + 1


@pytest.mark.parametrize("answer", [hang_up, lines(b"half", end=hang_up)])
async def test_a_read_is_tried_again_when_the_connection_breaks(
    server: Server, transport: Transport, answer: Answer
) -> None:
    server.then(answer, ok(b"there"))
    assert await transport.request("GET", "/x") == b"there"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("answer", [hang_up, status(500), status(503)])
async def test_a_write_that_may_have_been_carried_out_is_never_sent_again(
    server: Server, transport: Transport, method: str, answer: Answer
) -> None:
    server.then(ok(), answer, ok())
    await transport.request("GET", "/x")  # now there is a kept-alive connection, which HTTP clients like to distrust
    with pytest.raises((TransportError, ServerError)):
        await transport.request(method, "/x", body=b"{}")
    assert [request.method for request in server.received] == ["GET", method]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_anything_rejected_with_429_is_sent_again(server: Server, transport: Transport, method: str) -> None:
    server.then(status(429, headers={"Retry-After": "0"}), ok(b"there"))
    assert await transport.request(method, "/x") == b"there"


@pytest.mark.slow
async def test_retry_after_is_waited_for(server: Server, transport: Transport) -> None:
    server.then(status(429, headers={"Retry-After": "1"}), ok())
    loop = asyncio.get_running_loop()
    started = loop.time()
    await transport.request("GET", "/x")
    assert loop.time() - started >= 1


async def test_a_wait_beyond_the_limit_is_not_begun(server: Server, transport: Transport) -> None:
    server.then(status(429, message="slow down", headers={"Retry-After": "60"}))
    with pytest.raises(TooManyRequestsError, match="slow down") as caught:
        await transport.request("POST", "/x", body=b"{}", timeout=2)
    assert caught.value.retry_after == 60


async def test_a_disruption_budget_is_not_waited_for(server: Server, transport: Transport) -> None:
    server.then(status(429, "TooManyRequests", "no", details={"causes": [{"reason": "DisruptionBudget"}]}))
    with pytest.raises(TooManyRequestsError):
        await transport.request("POST", "/x")
    assert len(server.received) == 1


async def test_a_write_is_sent_once_the_server_can_be_reached() -> None:
    port = unused_port()
    transport = Transport(connection_to(f"http://127.0.0.1:{port}"), user_agent="test/1", timeout=LONG)
    call = asyncio.create_task(transport.request("POST", "/x", body=b"{}"))
    await asyncio.sleep(0.05)  # the first try has been refused; a later one finds it
    server = Server()
    server.then(ok(b"done"))
    await server.start(port=port)
    assert await call == b"done"
    assert len(server.received) == 1
    await transport.aclose()
    await server.stop()
