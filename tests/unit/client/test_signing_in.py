"""Who we are and whom we trust: tokens, impersonation, certificates, proxies."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs

from asyncop.api.errors import ConfigError, TransportError, UnauthorizedError
from asyncop.client import Transport
from asyncop.client.sign_in import Fixed, Identity, TokenFile
from tests.testbed.pki import Pki
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Answer, Server, ok, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.asyncio


class Tokens:
    """A source of credentials that changes."""

    def __init__(self, *tokens: str) -> None:
        self.tokens, self.loads = list(tokens), 0

    def identity(self) -> Identity:
        return Identity(f"Bearer {self.tokens[min(self.loads, len(self.tokens) - 1)]}")

    async def reload(self) -> Identity:
        self.loads += 1
        if not self.tokens:
            raise ConfigError("gone")
        return self.identity()

    def sign_in(self) -> Fixed:
        return Fixed(self.identity(), self.reload)


def only(token: str) -> Answer:
    """200 for that token, 401 for others."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_right = request.headers.get("Authorization") == f"Bearer {token}"
        return await (ok(b"in") if is_right else status(401, "Unauthorized", "no"))(request)

    return answer


@pytest_asyncio.fixture
async def tokens(server: Server) -> Tokens:
    return Tokens("old", "new")


@pytest_asyncio.fixture
async def signed(server: Server, tokens: Tokens) -> AsyncIterator[Transport]:
    connection = connection_to(
        server.url,
        sign_in=tokens.sign_in(),
        headers=(("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")),
    )
    transport = Transport(connection, user_agent="test/1", timeout=5)
    yield transport
    await transport.aclose()


async def test_a_request_carries_token_and_impersonation(server: Server, signed: Transport) -> None:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.extend([request.headers["Impersonate-User"], request.headers.getall("Impersonate-Group")])
        return await only("old")(request)

    server.then(answer)
    assert await signed.request("GET", "/x") == b"in"
    assert seen == ["jane", ["a", "b"]]


async def test_after_401_the_credentials_are_read_anew_once(server: Server, signed: Transport, tokens: Tokens) -> None:
    server.routes["/x"] = only("new")
    assert await signed.request("POST", "/x", body=b"{}") == b"in"
    assert await signed.request("GET", "/x") == b"in"
    assert tokens.loads == 1
    assert len(server.received) == 3


async def test_a_stream_reads_its_credentials_anew_too(server: Server, signed: Transport) -> None:
    server.routes["/x"] = only("new")
    async with signed.stream("/x") as stream:
        assert await stream.chunk() == b"in"


async def test_a_second_401_is_raised(server: Server, signed: Transport, tokens: Tokens) -> None:
    server.routes["/x"] = only("another")
    with pytest.raises(UnauthorizedError):
        await signed.request("GET", "/x")
    assert len(server.received) == 2


@pytest.mark.looptime
@pytest.mark.parametrize("content", [None, b"", b"\xff", b"half\nof"], ids=["gone", "empty", "rubbish", "lines"])
async def test_a_token_file_that_cannot_be_used_leaves_the_old_token(
    server: Server, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "token"
    path.write_text("old\n")
    server.routes["/x"] = only("old")
    transport = Transport(connection_to(server.url, sign_in=TokenFile(path)), user_agent="test/1")
    assert await transport.request("GET", "/x") == b"in"
    path.unlink() if content is None else path.write_bytes(content)
    await asyncio.sleep(61)
    with capture_logs() as logs:
        assert await transport.request("GET", "/x") == b"in"
    assert [line["event"] for line in logs] == ["Using the old token"]
    assert "half" not in str(logs)
    path.write_text("new\n")
    server.routes["/x"] = only("new")
    assert await transport.request("GET", "/x") == b"in"
    await transport.aclose()


async def test_many_refused_at_once_read_the_credentials_once(
    server: Server, signed: Transport, tokens: Tokens
) -> None:
    server.routes["/x"] = only("new")
    everybody = asyncio.gather(*(signed.request("GET", "/x") for _ in range(20)))
    assert set(await everybody) == {b"in"}
    assert tokens.loads == 1


async def test_credentials_that_cannot_be_read_leave_the_401(server: Server, signed: Transport, tokens: Tokens) -> None:
    tokens.tokens.clear()
    server.routes["/x"] = only("new")
    with pytest.raises(UnauthorizedError):
        await signed.request("GET", "/x")
    assert len(server.received) == 1


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    pki.create()
    pki.issue("server", "server", alternative_names=["DNS:api.example"])
    pki.issue("jane", "jane", group="people")
    return pki


def configured(pki: Pki, **settings: Any) -> Any:
    from kubernetes_asyncio.client import Configuration

    configuration = Configuration()
    configuration.ssl_ca_cert = str(pki.ca)
    for name, value in settings.items():
        setattr(configuration, name, value)
    return configuration


@pytest_asyncio.fixture
async def tls_server(pki: Pki) -> AsyncIterator[Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca))
    context.load_cert_chain(pki.certificate("server"), pki.key("server"))
    context.verify_mode = ssl.CERT_OPTIONAL
    server = Server()

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        return web.json_response([value for part in certificate.get("subject", ()) for _, value in part])

    server.routes["/who"] = who
    await server.start(tls=context)
    yield server
    await server.stop()


async def call_with(server: Server, configuration: Any) -> Any:
    transport = Transport(connection_to(server.url, configuration=configuration), user_agent="test/1", timeout=5)
    try:
        return json.loads(await transport.request("GET", "/who"))
    finally:
        await transport.aclose()


async def test_the_servers_name_can_be_given_and_the_client_certificate_is_shown(tls_server: Server, pki: Pki) -> None:
    configuration = configured(
        pki, tls_server_name="api.example", cert_file=str(pki.certificate("jane")), key_file=str(pki.key("jane"))
    )
    assert await call_with(tls_server, configuration) == ["people", "jane"]


async def test_a_wrong_name_is_an_untrusted_server_and_not_tried_again(tls_server: Server, pki: Pki) -> None:
    with pytest.raises(TransportError, match=r"its certificate can't be trusted: .*127\.0\.0\.1"):
        await call_with(tls_server, configured(pki))
    assert not tls_server.received


async def test_an_unknown_authority_is_an_untrusted_server(tls_server: Server, pki: Pki) -> None:
    configuration = configured(pki, ssl_ca_cert=None, tls_server_name="api.example")
    with pytest.raises(TransportError, match="certificate can't be trusted"):
        await call_with(tls_server, configuration)


async def test_verification_can_be_switched_off(tls_server: Server, pki: Pki) -> None:
    assert await call_with(tls_server, configured(pki, ssl_ca_cert=None, verify_ssl=False)) == []


async def test_a_server_without_tls_is_told(server: Server, pki: Pki) -> None:
    url = server.url.replace("http://", "https://")
    transport = Transport(connection_to(url, configuration=configured(pki)), user_agent="test/1", timeout=5)
    with pytest.raises(TransportError, match="TLS failed: "):
        await transport.request("GET", "/x")
    await transport.aclose()


async def test_a_handshake_that_is_cut_off_is_tried_again_since_nothing_was_sent(pki: Pki) -> None:
    connections = 0

    async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1)
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(cut_off, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    transport = Transport(
        connection_to(f"https://127.0.0.1:{port}", configuration=configured(pki)), user_agent="test/1", timeout=1
    )
    with pytest.raises(TransportError):
        await transport.request("POST", "/x", body=b"{}")
    assert connections > 1
    await transport.aclose()
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize("setting", ["ssl_ca_cert", "cert_file"])
async def test_rubbish_instead_of_a_certificate_is_a_config_error(pki: Pki, tmp_path: Path, setting: str) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    with pytest.raises(ConfigError, match=r"test: the (certificate authority|client certificate or its key) can't be"):
        Transport(connection_to("https://x", configuration=configured(pki, **{setting: str(rubbish)})), user_agent="t")


async def test_calls_go_through_the_proxy(server: Server) -> None:
    server.then(ok(b"by proxy"))
    transport = Transport(connection_to("http://api.invalid:1", proxy=server.url), user_agent="test/1")
    assert await transport.request("GET", "/x") == b"by proxy"
    await transport.aclose()


async def test_a_token_that_no_header_can_hold_is_told_and_not_a_crash(server: Server) -> None:
    sign_in = Fixed(Identity("Bearer half\nof"))
    transport = Transport(connection_to(server.url, sign_in=sign_in), user_agent="test/1")
    try:
        with pytest.raises(TransportError, match="can't be sent: ") as caught:
            await transport.request("GET", "/x")
    finally:
        await transport.aclose()
    assert "half" not in str(caught.value)
    assert not server.received
