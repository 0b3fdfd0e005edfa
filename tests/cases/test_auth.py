"""What people met with credentials that change: rotated tokens and certificates, and exec plugins. HTTPS is real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

import asyncop
from asyncop.client import Transport, config, exec_plugin, load_connection
from asyncop.client.config import in_cluster
from asyncop.testing import ApiServer
from tests.cases.embedded import until
from tests.testbed.pki import Pki
from tests.unit.client.server import Answer, Server, ok, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio

API = "client.authentication.k8s.io/v1"
LOOPBACK = ["IP:127.0.0.1"]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def next_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return authority(tmp_path_factory.mktemp("next"))


def authority(folder: Path) -> Pki:
    pki = Pki(folder)
    pki.create()
    pki.issue("server", "server", alternative_names=LOOPBACK)
    for name in ("jane", "john"):
        pki.issue(name, name)
    return pki


# -- BL-19: files that are replaced while we run


class ServiceAccount:
    """A mounted service account as the kubelet keeps it: links into a data directory that is swapped whole."""

    def __init__(self, folder: Path, token: str, ca: Path) -> None:
        self.folder, self._version = folder, 0
        folder.mkdir()
        self.rotate(token, ca)
        for name in ("token", "ca.crt", "namespace"):
            (folder / name).symlink_to(f"..data/{name}")

    def rotate(self, token: str, ca: Path) -> None:
        self._version += 1
        data = self.folder / f"..{self._version}"
        data.mkdir()
        (data / "token").write_text(token)
        (data / "ca.crt").write_bytes(ca.read_bytes())
        (data / "namespace").write_text("default")
        (self.folder / "..new").symlink_to(data.name)
        (self.folder / "..new").rename(self.folder / "..data")


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


@dataclasses.dataclass
class Cluster:
    """An API server, an operator that signs in to it as a service account, and somebody else who makes objects."""

    server: ApiServer
    account: ServiceAccount
    seen: list[str]
    kubeconfig: Path

    async def reconciles(self, name: str, authority: Path | None = None) -> None:
        """A new object is seen by the watch, and written to. Who makes it trusts `authority`."""
        content = json.loads(self.server.kubeconfig())
        content["users"][0]["user"]["token"] = "admin"
        if authority is not None:
            content["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
        self.kubeconfig.write_text(json.dumps(content))
        async with asyncop.connect(str(self.kubeconfig)) as client:
            await client.create(ConfigMap(metadata=asyncop.ObjectMeta(name=name, namespace="default")))
        await until(lambda: name in self.seen, f"{name} is reconciled")


@contextlib.asynccontextmanager
async def cluster(folder: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    seen: list[str] = []

    @asyncop.reconciler(ConfigMap)
    async def look(obj: ConfigMap, ctx: asyncop.Context) -> None:
        await ctx.client.patch(obj, {"data": {"seen": "yes"}})
        seen.append(obj.metadata.name)

    files = (pki.certificate("server"), pki.key("server"), pki.ca)
    async with ApiServer(tls=files) as server:
        account = ServiceAccount(folder / "serviceaccount", server.token, pki.ca)
        server.faults.accept("admin")
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        monkeypatch.setattr(config, "SERVICE_ACCOUNT", account.folder)
        options = asyncop.ManagerOptions(name="case", namespaces=("default",))
        manager = asyncop.Manager(reconcilers=[look], options=options)
        running = asyncio.create_task(manager.run())
        try:
            await until(lambda: server.open_watches > 0, "it watches")
            yield Cluster(server, account, seen, folder / "admin")
        finally:
            manager.stop()
            assert await running == 0


def complaints(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["log_level"] in ("warning", "error")]


@pytest.mark.looptime
async def test_bl_19_a_token_refused_from_the_moment_of_its_rotation_is_read_anew_for_writes_and_watches(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logs:
        async with cluster(tmp_path, pki, monkeypatch) as world:
            await world.reconciles("before")
            world.server.faults.accept("rotated")
            world.account.rotate("rotated", pki.ca)
            world.server.faults.revoke(world.server.token)
            await world.reconciles("written-with-the-new-token")
            world.server.faults.accept("again")
            world.account.rotate("again", pki.ca)
            world.server.faults.revoke("rotated")
            await asyncio.sleep(30)  # a watch that ends as soon as it has begun is something else
            world.server.faults.end_watches()
            await world.reconciles("watched-with-the-new-token")
            assert len(world.seen) == 3
    assert complaints(logs) == [], "no failure counted, nothing ended"


@pytest.mark.looptime
async def test_bl_19_a_token_file_is_read_again_each_minute_before_anything_is_refused(
    tmp_path: Path, pki: Pki
) -> None:
    async with serving(pki) as server, signed_in(server, tmp_path, pki, "old") as (transport, account):
        server.routes["/x"] = ok(b"in")
        await transport.request("GET", "/x")
        account.rotate("new", pki.ca)
        await asyncio.sleep(61)
        async with transport.stream("/x") as stream:
            assert await stream.chunk() == b"in"
        assert [each.headers["Authorization"] for each in server.received] == ["Bearer old", "Bearer new"]


@pytest.mark.looptime
async def test_bl_19_a_new_authority_is_trusted_by_the_next_connections(
    tmp_path: Path, pki: Pki, next_pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logs:
        async with cluster(tmp_path, pki, monkeypatch) as world:
            await world.reconciles("before")
            world.account.rotate(world.server.token, next_pki.ca)
            world.server.swap_certificate(next_pki.certificate("server"), next_pki.key("server"))
            world.server.faults.reset_watches()
            await world.reconciles("after", next_pki.ca)
    assert complaints(logs) == ["Could not list or watch"], "since it was reset, and once"
    assert "Certificates were renewed" in [line["event"] for line in logs]


@pytest.mark.looptime
async def test_bl_19_a_server_ahead_of_its_authority_is_distrusted_until_the_file_comes(
    tmp_path: Path, pki: Pki, next_pki: Pki
) -> None:
    async with serving(pki) as server, signed_in(server, tmp_path, pki, "t") as (transport, account):
        server.routes["/x"] = ok(b"in", Connection="close")
        assert await transport.request("GET", "/x") == b"in"
        server.tls.load_cert_chain(next_pki.certificate("server"), next_pki.key("server"))
        with pytest.raises(asyncop.TransportError, match="can't be trusted"):
            await transport.request("GET", "/x")
        account.rotate("t", next_pki.ca)
        assert await transport.request("POST", "/x", body=b"{}") == b"in", "sent once, by a connection that is trusted"
        assert len(server.received) == 2


@pytest.mark.looptime
async def test_bl_19_client_certificate_files_are_read_again(tmp_path: Path, pki: Pki, next_pki: Pki) -> None:
    async with serving(pki) as server:
        for name in ("crt", "key"):
            (tmp_path / name).write_bytes((pki.path / f"jane.{name}").read_bytes())
        user = {"client-certificate": "crt", "client-key": "key"}
        async with transport_of(kubeconfig(tmp_path, server, pki, user)) as transport:
            assert await transport.request("GET", "/who") == b"jane"
            (tmp_path / "crt").write_bytes(pki.certificate("john").read_bytes())
            await asyncio.sleep(61)
            with capture_logs() as logs:
                assert await transport.request("GET", "/who") == b"jane", "half of a change is none"
            assert complaints(logs) == ["Using the old certificates"]
            (tmp_path / "key").write_bytes(pki.key("john").read_bytes())
            await asyncio.sleep(61)
            assert await transport.request("GET", "/who") == b"john"


async def test_embedded_certificates_leave_no_file_and_need_no_place_for_one(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "read-only"
    monkeypatch.setattr("tempfile.tempdir", str(nowhere))
    async with serving(pki) as server:
        user = {f"client-{part}-data": encoded(pki.path / f"jane.{end}") for part, end in PARTS}
        path = kubeconfig(tmp_path, server, pki, user)
        content = json.loads(path.read_text())
        content["clusters"][0]["cluster"] = {"server": server.url, "certificate-authority-data": encoded(pki.ca)}
        path.write_text(json.dumps(content))
        async with transport_of(path) as transport:
            assert await transport.request("GET", "/who") == b"jane"
    assert not nowhere.exists()


PARTS = (("certificate", "crt"), ("key", "key"))


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


# -- BL-20: exec plugins


class SomePlugin:
    """A plugin that counts its runs, and notes if two of them overlap."""

    def __init__(self, folder: Path, body: str) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self._runs = folder / "runs"
        self._runs.touch()
        head = f"""\
            #!/bin/sh
            cd {folder}
            mkdir lock || touch overlapped
            echo $$ >> runs
            n=$(wc -l < runs)
            expires() {{ date -u -d "now $1 seconds" +%Y-%m-%dT%H:%M:%S.%NZ; }}
            print() {{ echo "{{\\"apiVersion\\":\\"{API}\\",\\"kind\\":\\"ExecCredential\\",\\"status\\":{{$1}}}}"; }}
            """
        self.path.write_text(f"{textwrap.dedent(head)}{body}\nrmdir lock\n")
        self.path.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().split())

    @property
    def is_alive(self) -> bool:
        """Whether anything of the process groups of its runs is left."""
        groups = set(self._runs.read_text().split())
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
                if group in groups and state != "Z":
                    return True
        return False

    @property
    def has_overlapped(self) -> bool:
        return (self.folder / "overlapped").exists()

    @property
    def user(self) -> dict[str, Any]:
        return {"exec": {"command": "./plugin", "apiVersion": API, "interactiveMode": "Never"}}


TOKEN = 'print "\\"token\\":\\"t$n\\""'


def with_expiry(seconds: str) -> str:
    return f'print "\\"token\\":\\"t$n\\",\\"expirationTimestamp\\":\\"$(expires {seconds})\\""'


@contextlib.asynccontextmanager
async def plugged(folder: Path, pki: Pki, body: str) -> AsyncIterator[tuple[Server, Transport, SomePlugin]]:
    """A transport that signs in by a plugin, and its server."""
    plugin = SomePlugin(folder, body)
    async with serving(pki) as server, transport_of(kubeconfig(folder, server, pki, plugin.user)) as transport:
        yield server, transport, plugin


def only(*tokens: str) -> Answer:
    """200 for these, 401 for others."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_right = request.headers.get("Authorization", "").removeprefix("Bearer ") in tokens
        return await (ok(b"in") if is_right else status(401, "Unauthorized", "no"))(request)

    return answer


async def test_bl_20_a_token_of_two_seconds_is_renewed_before_it_expires(tmp_path: Path, pki: Pki) -> None:
    refused = 0
    async with plugged(tmp_path, pki, with_expiry("2")) as (server, transport, plugin):
        first_seen: dict[str, float] = {}

        async def living(request: web.Request) -> web.StreamResponse:
            nonlocal refused
            age = time.monotonic() - first_seen.setdefault(request.headers["Authorization"], time.monotonic())
            refused += age > 2
            return await (ok(b"in") if age <= 2 else status(401))(request)

        server.routes["/x"] = living
        until_then = time.monotonic() + 5
        while time.monotonic() < until_then:
            assert await transport.request("GET", "/x") == b"in"
            await asyncio.sleep(0.02)
        assert refused == 0
        assert 3 <= plugin.runs <= 5
        assert not plugin.has_overlapped


async def test_bl_20_without_an_expiry_a_token_is_kept_until_it_is_refused(tmp_path: Path, pki: Pki) -> None:
    async with plugged(tmp_path, pki, TOKEN) as (server, transport, plugin):
        server.routes["/x"] = only("t1")
        for _ in range(30):
            assert await transport.request("GET", "/x") == b"in"
        assert plugin.runs == 1
        await asyncio.sleep(1)  # no sooner may it run again
        server.routes["/x"] = only("t2")
        assert await transport.request("PATCH", "/x", body=b"{}") == b"in"
        async with transport.stream("/x") as stream:
            assert await stream.chunk() == b"in"
        assert plugin.runs == 2


async def test_bl_20_a_certificate_and_its_key_in_place_of_a_token(tmp_path: Path, pki: Pki) -> None:
    def escaped(path: Path) -> str:
        return path.read_text().replace("\n", "\\n")

    for name in ("jane", "john"):
        given = {"clientCertificateData": pki.certificate(name).read_text(), "clientKeyData": pki.key(name).read_text()}
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": given})
        )
    body = "if [ $n = 1 ]; then cat jane.json; else cat john.json; fi"
    async with plugged(tmp_path, pki, body) as (server, transport, plugin):
        assert await transport.request("GET", "/who") == b"jane"
        await asyncio.sleep(1)

        async def only_john(request: web.Request) -> web.StreamResponse:
            return await (ok(b"in") if name_of(request) == "john" else status(401))(request)

        server.routes["/x"] = only_john
        assert await transport.request("GET", "/x") == b"in"
        assert plugin.runs == 2


async def test_bl_20_an_expiry_in_the_past_does_not_mean_a_run_for_each_request(tmp_path: Path, pki: Pki) -> None:
    with capture_logs() as logs:
        async with plugged(tmp_path, pki, with_expiry("-3600")) as (server, transport, plugin):
            server.routes["/x"] = only("t1")
            assert set(await asyncio.gather(*(transport.request("GET", "/x") for _ in range(100)))) == {b"in"}
            assert plugin.runs == 1
            await asyncio.sleep(1)
            server.routes["/x"] = only("t2")
            assert await transport.request("GET", "/x") == b"in"
            assert plugin.runs == 2
    assert "the clocks differ" in complaints(logs)[0]


async def test_bl_20_a_plugin_whose_tokens_are_always_refused_runs_once_a_second_at_most(
    tmp_path: Path, pki: Pki
) -> None:
    async with plugged(tmp_path, pki, TOKEN) as (server, transport, plugin):
        server.routes["/x"] = status(401, "Unauthorized", "no")
        since = time.monotonic()
        while time.monotonic() < since + 2.5:
            with pytest.raises(asyncop.UnauthorizedError):
                await transport.request("GET", "/x")
        assert plugin.runs <= 4


async def test_bl_20_a_hundred_requests_wait_for_one_run_and_the_loop_for_none(tmp_path: Path, pki: Pki) -> None:
    async with plugged(tmp_path, pki, f"if [ $n -gt 1 ]; then sleep 0.5; fi; {TOKEN}") as (server, transport, plugin):
        server.routes["/x"] = only("t2")
        await asyncio.sleep(1)
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        since = time.monotonic()
        async with asyncio.timeout(10):
            ticking = asyncio.create_task(tick())
            answers = await asyncio.gather(*(transport.request("GET", "/x") for _ in range(100)))
            ticking.cancel()
        assert set(answers) == {b"in"}
        assert plugin.runs == 2
        assert not plugin.has_overlapped
        assert time.monotonic() - since > 0.5 > longest


async def test_bl_20_a_plugin_that_hangs_is_ended_and_holds_nobody_up_while_the_old_token_serves(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "TIME_LIMIT", 1.5)
    hanging = f"if [ $n -gt 1 ]; then sleep 60; fi; {with_expiry('3')}"
    async with plugged(tmp_path, pki, hanging) as (server, transport, plugin):
        server.routes["/x"] = only("t1")
        started = time.monotonic()
        slowest = 0.0
        while time.monotonic() < started + 2.8:
            before = time.monotonic()
            assert await transport.request("GET", "/x") == b"in"
            slowest = max(slowest, time.monotonic() - before)
            await asyncio.sleep(0.02)
        assert plugin.runs == 2
        assert slowest < 0.5
        await asyncio.sleep(0.5)  # now it is expired
        with pytest.raises(asyncop.TransportError, match=r"exec plugin .*/plugin gave nothing within 1\.5 s") as caught:
            await transport.request("PATCH", "/x", body=b"{}")
        assert "\n" not in str(caught.value)
    await until(lambda: not plugin.is_alive, "it is gone with its children")


async def test_bl_20_a_plugin_that_hangs_at_the_start_is_a_config_error(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "FIRST_TIME_LIMIT", 0.5)
    with pytest.raises(asyncop.ConfigError, match=r"exec plugin .*/plugin gave nothing within 0\.5 s"):
        async with plugged(tmp_path, pki, "sleep 60"):
            pass


async def test_bl_20_a_closed_client_leaves_no_plugin_behind(tmp_path: Path, pki: Pki) -> None:
    async with plugged(tmp_path, pki, f"if [ $n -gt 1 ]; then sleep 60; fi; {TOKEN}") as (server, transport, plugin):
        server.routes["/x"] = only("t2")
        await asyncio.sleep(1)
        request = asyncio.create_task(transport.request("GET", "/x"))
        await until(lambda: plugin.runs == 2, "it runs")
        await transport.aclose()
        with pytest.raises((asyncop.TransportError, asyncop.UnauthorizedError)):
            await request
    await until(lambda: not plugin.is_alive, "it is gone with its children")


# -- the world around


class TlsServer(Server):
    """Over HTTPS; `/who` tells whose client certificate was shown."""

    tls: ssl.SSLContext


@contextlib.asynccontextmanager
async def serving(pki: Pki) -> AsyncIterator[TlsServer]:
    server = TlsServer()
    server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca))
    server.tls.load_cert_chain(pki.certificate("server"), pki.key("server"))
    server.tls.verify_mode = ssl.CERT_OPTIONAL

    async def who(request: web.Request) -> web.StreamResponse:
        return web.Response(text=name_of(request))

    server.routes["/who"] = who
    await server.start(tls=server.tls)
    try:
        yield server
    finally:
        await server.stop()


def name_of(request: web.Request) -> str:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert") or {}
    return "".join(value for part in certificate.get("subject", ()) for _, value in part)


def kubeconfig(folder: Path, server: Server, pki: Pki, user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(pki.ca)}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return path


@contextlib.asynccontextmanager
async def transport_of(path: Path) -> AsyncIterator[Transport]:
    transport = Transport(await load_connection(str(path)), user_agent="case", timeout=10)
    try:
        yield transport
    finally:
        await transport.aclose()


@contextlib.asynccontextmanager
async def signed_in(
    server: Server, folder: Path, pki: Pki, token: str
) -> AsyncIterator[tuple[Transport, ServiceAccount]]:
    """A transport of a Pod."""
    account = ServiceAccount(folder / "serviceaccount", token, pki.ca)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        environment.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
        transport = Transport(in_cluster(account.folder), user_agent="case", timeout=10)
    try:
        yield transport, account
    finally:
        await transport.aclose()
