"""What people met on the way to the API server: proxies, IPv6, old authorities, overload, connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import asyncop
from asyncop.client import Client, Transport, config
from asyncop.testing import ApiServer
from tests.cases.embedded import embedded, refused, until
from tests.contract.operating import operating
from tests.testbed.pki import Pki
from tests.testbed.processes import run_tool
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Server, ok, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from tests.cases.embedded import Asked

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
SERVICE = "172.20.0.1"
SERVICE_V6 = "fd00:beef::1"
MAPS = "/api/v1/namespaces/default/configmaps"


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    pki.create()
    names = ["IP:127.0.0.1", f"IP:{SERVICE}", f"IP:{SERVICE_V6}", "DNS:api.example"]
    pki.issue("server", "server", alternative_names=names)
    return pki


# -- BL-11: overload


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("headers", "details", "least"),
    [({"Retry-After": "2"}, {}, 2.0), ({}, {"retryAfterSeconds": 2}, 2.0), ({}, {}, 0.1)],
    ids=["header", "body", "neither"],
)
@pytest.mark.parametrize("verb", ["list", "patch"])
async def test_bl_11_a_call_refused_for_overload_waits_as_long_as_asked_and_a_jitter(
    verb: str, headers: dict[str, str], details: dict[str, Any], least: float
) -> None:
    waits: set[float] = set()
    async with plain_server() as (server, client):
        for _ in range(5):
            server.then(status(429, "TooManyRequests", "slow down", headers=headers, details=details))
            server.then(ok({"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []}))
            before = asyncio.get_running_loop().time()
            if verb == "list":
                await client.raw("GET", MAPS)
            else:
                await client.raw("PATCH", f"{MAPS}/a", body=b"{}")
            waits.add(round(asyncio.get_running_loop().time() - before, 4))
    assert all(least + 0.1 <= each + 0.11 and each <= least + 0.3 for each in waits)
    assert len(waits) > 1, "not all at the same moment"


@pytest.mark.looptime
async def test_bl_11_a_call_that_is_refused_for_long_gives_its_worker_back() -> None:
    async with plain_server() as (server, client):
        server.routes[f"{MAPS}/a"] = status(429, "TooManyRequests", "slow down", headers={"Retry-After": "2"})
        before = asyncio.get_running_loop().time()
        with pytest.raises(asyncop.TooManyRequestsError) as caught:
            await client.raw("PATCH", f"{MAPS}/a", body=b"{}")
        assert asyncio.get_running_loop().time() - before <= 5.5
        assert caught.value.retry_after == 2


@pytest.mark.looptime
@pytest.mark.parametrize("form", ["header", "body", "neither"])
async def test_bl_11_a_watch_refused_for_overload_comes_back_and_never_ends(tmp_path: Path, form: str) -> None:
    ran: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        ran.append(obj.metadata.name)

    at: list[float] = []

    async def overloaded(asked: Asked) -> web.Response | None:
        if (asked.verb, asked.resource) != ("watch", "configmaps") or not is_overloaded:
            return None
        at.append(asked.at)
        answer = refused(429, "TooManyRequests", **({"retryAfterSeconds": 2} if form == "body" else {}))
        if form == "header":
            answer.headers["Retry-After"] = "2"
        return answer

    is_overloaded = False
    async with embedded(tmp_path) as world:
        world.instead(overloaded)
        async with world.operating("default", look):
            await until(lambda: world.server.open_watches == 1, "it watches")
            await asyncio.sleep(30)
            is_overloaded = True
            world.faults.end_watches()
            await until(lambda: len(at) == 10, "it goes on")
            is_overloaded = False
            await world.create(MAPS, "after")
            await until(lambda: ran == ["after"], "it watches again")
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert min(gaps) >= (0.8 if form == "neither" else 2.0) - 0.001


# -- BL-22: the way there


async def test_bl_22_service_on_ipv6_and_exceptions_of_a_proxy_in_a_network_of_its_own(
    tmp_path: Path, pki: Pki
) -> None:
    unshare = ["unshare", "--net"] + (["--user", "--map-root-user"] if os.getuid() else [])
    addresses = f"ip link set lo up && ip addr add {SERVICE_V6}/128 dev lo && ip addr add {SERVICE}/32 dev lo"
    probe = await asyncio.create_subprocess_exec(*unshare, "sh", "-c", addresses, stderr=asyncio.subprocess.DEVNULL)
    if await probe.wait():
        pytest.skip("no network namespace can be made here")
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "token").write_text("t")
    (tmp_path / "account" / "ca.crt").write_bytes(pki.ca.read_bytes())
    body = "import sys; from tests.cases.test_transport import in_a_network_of_its_own as body; body(*sys.argv[1:])"
    command = f'{addresses} && exec "$@"'
    process = await asyncio.create_subprocess_exec(
        *unshare, "sh", "-c", command, "sh", sys.executable, "-c", body, str(tmp_path / "account"), str(pki.path),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert output.decode().splitlines()[-1:] == ["all well"], output.decode()


def in_a_network_of_its_own(account: str, pki_path: str) -> None:
    """Run in a process of its own, which has the two addresses on its loopback."""
    asyncio.run(_in_a_network_of_its_own(Path(account), Pki(Path(pki_path))))


async def _in_a_network_of_its_own(account: Path, pki: Pki) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate("server"), pki.key("server"))
    reached: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        reached.append(next(line for line in head.decode().splitlines() if line.lower().startswith("host:")))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nin")
        await writer.drain()
        writer.close()

    config.SERVICE_ACCOUNT = account
    os.environ["KUBERNETES_SERVICE_PORT"] = "443"
    for name in ("KUBECONFIG", "HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        os.environ.pop(name, None)
    for host in (SERVICE_V6, SERVICE):
        os.environ["KUBERNETES_SERVICE_HOST"] = host
        os.environ["HTTPS_PROXY"] = "http://127.0.0.1:9"  # nobody listens
        os.environ["NO_PROXY"] = "172.20.0.0/16,.svc,fd00:beef::/64"
        async with await asyncio.start_server(answer, host, 443, ssl=context):
            async with asyncop.connect() as client:
                assert await client.raw("GET", "/version") == b"in"
            os.environ["NO_PROXY"] = "172.21.0.0/16"
            async with asyncop.connect() as client:
                with pytest.raises(asyncop.TransportError, match="refused"):  # by the proxy
                    await client.raw("GET", "/version", timeout=3)
    assert reached == [f"Host: [{SERVICE_V6}]", f"Host: {SERVICE}"], reached
    print("all well")


@pytest.mark.parametrize("exceptions", ["*", ""])
async def test_bl_22_the_proxy_of_a_kubeconfig_wins(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, exceptions: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", exceptions)
    async with tls_server(pki) as server, tunnelling(server) as (proxy, asked):
        server.routes["/x"] = ok(b"in")
        cluster = {"server": "https://api.example:6443", "certificate-authority": str(pki.ca), "proxy-url": proxy}
        async with asyncop.connect(str(kubeconfig(tmp_path, cluster))) as client:
            assert await client.raw("GET", "/x") == b"in"
        assert asked == ["CONNECT api.example:6443 HTTP/1.1"]


async def test_bl_22_the_proxy_of_the_environment_is_used(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_server(pki) as server, tunnelling(server) as (proxy, asked):
        monkeypatch.setenv("HTTPS_PROXY", proxy.removeprefix("http://"))
        monkeypatch.setenv("NO_PROXY", "172.20.0.0/16,.svc")
        server.routes["/x"] = ok(b"in")
        cluster = {"server": "https://api.example", "certificate-authority": str(pki.ca)}
        async with asyncop.connect(str(kubeconfig(tmp_path, cluster))) as client:
            assert await client.raw("GET", "/x") == b"in"
        assert asked == ["CONNECT api.example:443 HTTP/1.1"]


# -- an authority that doesn't say what its key is for


@pytest.fixture
def python_3_13() -> str:
    found = (
        sys.executable if sys.version_info >= (3, 13) else str(Path("~/.pyenv/versions/3.13.0/bin/python").expanduser())
    )
    if not os.access(found, os.X_OK):
        pytest.skip("no Python 3.13 here")
    return found


_WITHOUT_PACKAGES = """
import sys, types
for name in ("asyncop", "asyncop.api", "asyncop.client"):  # their modules alone, without what they need beside
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [name.replace(".", "/")]
from asyncop.api.errors import ConfigError
from asyncop.client.tls import Tls
settings = dict(ssl_ca_cert=sys.argv[1], cert_file=None, key_file=None, verify_ssl=True, assert_hostname=None)
about = dict(server="https://c", source="kubeconfig k", authority=b"")
connection = types.SimpleNamespace(configuration=types.SimpleNamespace(**settings), **about)
try:
    context = Tls(connection).context
except ConfigError as error:
    print(error)
    sys.exit(3)
import socket
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname="127.0.0.1"):
    print("trusted")
"""


@pytest.mark.parametrize("usage", [True, False])
async def test_from_python_3_13_on_an_authority_without_key_usage_is_told_with_what_to_do(
    tmp_path: Path, python_3_13: str, usage: bool
) -> None:
    pki = Pki(tmp_path)
    pki.create()
    if not usage:
        request = ["openssl", "req", "-x509", "-key", pki.ca_key, "-subj", "/CN=old", "-days", "9", "-out", pki.ca]
        run_tool([str(part) for part in request])
    pki.issue("server", "server", alternative_names=["IP:127.0.0.1"])
    async with tls_server(pki) as server:
        process = await asyncio.create_subprocess_exec(
            python_3_13, "-c", _WITHOUT_PACKAGES, str(pki.ca), server.url.rpartition(":")[2],
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
    if usage:
        assert output == "trusted\n"
        return
    assert output.startswith(f"kubeconfig k: the certificate authority {pki.ca} has no key usage extension")
    assert "make it anew (the key can stay) with keyUsage=critical,keyCertSign,cRLSign" in output
    assert output.count("\n") == 1


# -- BL-35: connections that break


class Relay:
    """What lies between client and server; breaks connections as it is told."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.resets_handshakes = 0
        self.resets_next_bytes = False
        self.resets = 0
        self.handshakes: list[bytes] = []

    async def serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        if self.resets_handshakes:
            self.resets_handshakes -= 1
            self.handshakes.append(await client.read(1))
            self._reset(answer)
            return
        server, request = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(self._requests(client, request, answer), copy(server, answer))
        finally:
            request.transport.abort()
            answer.transport.abort()

    async def _requests(
        self, client: asyncio.StreamReader, request: asyncio.StreamWriter, answer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await client.read(65536):
                if self.resets_next_bytes:
                    self.resets_next_bytes = False
                    self._reset(answer)
                    break
                request.write(data)
                await request.drain()
        request.transport.abort()

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.resets += 1
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.transport.abort()


class Operated:
    """An operator that reaches its server through a relay, and the test's own client, which doesn't."""

    def __init__(self, server: ApiServer, relay: Relay, client: Client, seen: list[str]) -> None:
        self.server, self.relay, self.seen = server, relay, seen
        self._client = client

    async def reconciles(self, name: str) -> None:
        await self._client.create(ConfigMap(metadata=asyncop.ObjectMeta(name=name, namespace="default")))
        await until(lambda: name in self.seen, f"{name} is reconciled")

    async def reasons(self) -> set[str]:
        answer = json.loads(await self._client.raw("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))
        return {event["reason"] for event in answer["items"]}


@contextlib.asynccontextmanager
async def operated(folder: Path, pki: Pki) -> AsyncIterator[Operated]:
    seen: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        await ctx.client.patch(obj, {"data": {"seen": "yes"}})
        ctx.event(f"Saw{obj.metadata.name.capitalize()}", "it is there")
        seen.append(obj.metadata.name)

    async with ApiServer(tls=(pki.certificate("server"), pki.key("server"), pki.ca)) as server:
        port = int(server.url.rpartition(":")[2])
        relay = Relay(port)
        listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
        direct, relayed = folder / "direct", folder / "relayed"
        server.write_kubeconfig(direct)
        relayed.write_text(direct.read_text().replace(f":{port}", f":{listener.sockets[0].getsockname()[1]}"))
        async with asyncop.connect(str(direct)) as client, operating(relayed, "default", look):
            await until(lambda: server.open_watches > 0, "it watches")
            yield Operated(server, relay, client, seen)
        listener.close()


@pytest.mark.looptime
async def test_bl_35_a_reset_in_the_tls_handshake_of_a_watch_that_comes_back(tmp_path: Path, pki: Pki) -> None:
    async with operated(tmp_path, pki) as world:
        await world.reconciles("before")
        world.relay.resets_handshakes = 3
        world.server.faults.reset_watches()
        await until(lambda: world.relay.resets == 3, "it tries again")
        await world.reconciles("after")
        assert world.relay.handshakes == [b"\x16"] * 3, "each began with a TLS record of the handshake"


async def test_bl_35_a_reset_while_an_event_is_posted_stops_nothing(tmp_path: Path, pki: Pki) -> None:
    async with operated(tmp_path, pki) as world:
        world.server.faults.reset("events.events.k8s.io", verb="create", times=2)
        await world.reconciles("one")
        await world.reconciles("two")
        await world.reconciles("three")
        async with asyncio.timeout(15):
            while "SawThree" not in await world.reasons():  # noqa: ASYNC110 - it is asked over HTTP
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("repeatable", [True, False])
async def test_bl_35_a_post_that_may_be_repeated_is_sent_again_after_a_reset(tmp_path: Path, repeatable: bool) -> None:
    async with ApiServer() as server, asyncop.connect(str(server.write_kubeconfig(tmp_path / "config"))) as client:
        server.faults.reset("events.events.k8s.io", verb="create", times=2)
        event = {
            "metadata": {"name": "e", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reason": "R", "action": "A", "type": "Normal", "reportingController": "c", "reportingInstance": "i",
            "regarding": {"kind": "Namespace", "name": "default", "namespace": "default"},
        }  # fmt: skip
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        post = client.raw("POST", path, body=json.dumps(event).encode(), repeatable=repeatable)
        if repeatable:
            assert json.loads(await post)["reason"] == "R"
        else:
            with pytest.raises(asyncop.TransportError):
                await post


async def test_bl_35_an_idle_connection_closed_just_as_a_patch_is_sent(tmp_path: Path, pki: Pki) -> None:
    async with operated(tmp_path, pki) as world:
        await world.reconciles("before")
        await until(lambda: world.server.open_watches > 0, "all is quiet")
        world.relay.resets_next_bytes = True
        await world.reconciles("after")
        assert world.relay.resets == 1


# -- the world around


def kubeconfig(folder: Path, cluster: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
    }
    path.write_text(json.dumps(content))
    return path


@contextlib.asynccontextmanager
async def plain_server() -> AsyncIterator[tuple[Server, Client]]:
    server = Server()
    await server.start()
    transport = Transport(connection_to(server.url), user_agent="case")
    try:
        yield server, Client(transport)
    finally:
        await transport.aclose()
        await server.stop()


@contextlib.asynccontextmanager
async def tls_server(pki: Pki) -> AsyncIterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate("server"), pki.key("server"))
    server = Server()
    await server.start(tls=context)
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def tunnelling(server: Server) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that leads to the server, whatever it is asked for; its URL, and what it was asked."""
    asked: list[str] = []

    async def tunnel(client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        asked.append((await client.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        answer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back, onward = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        await asyncio.gather(copy(client, onward), copy(back, answer))

    async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", asked
