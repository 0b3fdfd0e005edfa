"""The embedded API server: starting, stopping, and what tests hold in their hands."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import ssl
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiohttp import web

from asyncop.testing.catalog import Catalog
from asyncop.testing.collector import Collector
from asyncop.testing.defining import Definitions
from asyncop.testing.faults import Faults
from asyncop.testing.objects import Intent, Objects
from asyncop.testing.serving import Front
from asyncop.testing.storage import Storage
from asyncop.testing.streaming import BOOKMARK_INTERVAL, Streams, reset_connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
_log = logging.getLogger("asyncop.testing")
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a request, as kube-apiserver has it."""

_SHUTDOWN = 0.5
"""Seconds that open requests get when the server stops."""


class ApiServer:
    """An API server in memory, for tests and demos only.

    `async with ApiServer() as server` serves in the running loop, `with ApiServer() as server` in a thread with a loop
    of its own. Both give a free port of the loopback address, and end every connection when they end.

    Args:
        controllers: collect garbage by owner and empty deleted namespaces, as kube-controller-manager does; without,
            both wait for ever, as on a bare kube-apiserver.
        bookmark_interval: seconds between bookmarks.
        tls: certificate and key files to serve HTTPS with; the third is the CA that clients are told to trust.
        port: 0 picks a free one.
        loop_factory: of the thread's loop.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        bookmark_interval: float = BOOKMARK_INTERVAL,
        tls: tuple[Path, Path, Path] | None = None,
        port: int = 0,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._storage = Storage()
        self._objects = Objects(self._storage, Catalog())
        self._streams = Streams(self._storage.clock, bookmark_interval)
        self._tls, self._port, self._loop_factory = tls, port, loop_factory
        self._context: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._listening: asyncio.Task[None] | None = None
        self.token = secrets.token_urlsafe(16)
        """The bearer token that the kubeconfig carries. Without TLS nobody needs one, for kubectl sends none then."""
        self.faults = Faults(self._in_loop)
        """What can be made to go wrong."""
        self.faults.attach(self._objects, self._streams)
        self.faults.require(self.token, strict=tls is not None)
        self._definitions = Definitions(self._objects)
        self._collector = Collector(self._objects) if controllers else None
        self._front = Front(self._objects, self.faults, self._streams)

    # what clients need

    @property
    def url(self) -> str:
        """Where it listens; only while it runs."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def kubeconfig(self) -> str:
        """The text of a kubeconfig for it."""
        cluster: dict[str, Any] = {"server": self.url}
        if self._tls:
            cluster["certificate-authority"] = str(self._tls[2])
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": "embedded", "user": {"token": self.token}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
        }
        return json.dumps(config, indent=1)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig to a file, readable by its owner only."""
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig())
        return path

    @property
    def resource_version(self) -> int:
        """The version of the last write."""
        return self._storage.clock.now

    @property
    def open_watches(self) -> int:
        """How many clients are watching."""
        return len(self._streams.open)

    # life

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    def __enter__(self) -> Self:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="embedded API server", daemon=True)
        self._thread.start()
        started.result()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._live(started))

    async def _live(self, started: Future[None]) -> None:
        self._ended = asyncio.Event()
        try:
            await self._start()
        except BaseException as error:
            started.set_exception(error)
            raise
        started.set_result(None)
        await self._ended.wait()
        await self._stop()

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*self._tls[:2])
        self._server = web.Server(
            self._front.handle, request_factory=self._request, handler_cancellation=True, access_log=None
        )
        await self._listen(self._bind())
        for name in _NAMESPACES:
            self._bootstrap(name)
        _log.warning("embedded API server at %s: in memory, for tests and demos only, never for production", self.url)

    def _bootstrap(self, name: str) -> None:
        kind = self._objects.catalog.find("", "v1", "namespaces")
        if name not in self._objects.collection(kind).objects:
            self._objects.create(kind, "", {"metadata": {"name": name}}, Intent("kube-apiserver"))

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        assert self._loop is not None
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=_BODY_LIMIT)

    def _bind(self) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        listening.setblocking(False)
        self._port = listening.getsockname()[1]
        return listening

    async def _listen(self, listening: socket.socket) -> None:
        assert self._loop is not None
        assert self._server is not None
        self._listener = await self._loop.create_server(self._server, sock=listening, ssl=self._context)

    async def _stop(self) -> None:
        assert self._server is not None
        if self._listening is not None:
            await self._listening
        if self._listener is not None:
            self._listener.close()
        for stream in tuple(self._streams.open):
            stream.is_silent = False
            stream.watcher.end()
        await self._server.shutdown(_SHUTDOWN)

    # faults of the whole server

    def refuse_connections(self) -> None:
        """Stop listening and drop every connection, as a server that is down. `accept_connections()` ends it."""
        self._in_loop(self._refuse)

    def accept_connections(self) -> None:
        """Listen again, at the same port, with everything that was stored."""

        def accept() -> None:
            assert self._loop is not None
            if self._listener is None:
                self._listening = self._loop.create_task(self._listen(self._bind()), name="embedded API server listens")

        self._in_loop(accept)

    def _refuse(self) -> None:
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        self._listener = None
        for connection in tuple(self._server.connections):
            reset_connection(connection.transport)

    def swap_certificate(self, certificate: Path, key: Path) -> None:
        """Present another certificate to connections made from now on; open ones stay."""
        context = self._context
        if context is None:
            raise ValueError("the server doesn't serve HTTPS; give it tls=")
        self._in_loop(lambda: context.load_cert_chain(certificate, key))

    # crossing into the server's loop

    def _in_loop(self, act: Callable[[], T]) -> T:
        loop = self._loop
        if loop is None or not loop.is_running() or _running() is loop:
            return act()
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(act())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
