"""A proxy before a real API server, where a test can act between a client's decision and its effect.

It forwards everything unchanged, watches too, and calls what a test registered before or after a request that matches.
The client under test needs no knowledge of it: it gets a kubeconfig that points here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from pathlib import Path

Hook = Callable[[web.Request], Awaitable[web.Response | None]]


@dataclass
class Proxy:
    """One running proxy."""

    kubeconfig: Path
    seen: list[str] = field(default_factory=list)
    """`METHOD path` of every request, in the order of arrival."""
    _before: list[tuple[str, re.Pattern[str], Hook]] = field(default_factory=list)
    _after: list[tuple[str, re.Pattern[str], Hook]] = field(default_factory=list)

    def before(self, method: str, path: str, hook: Hook) -> None:
        """Call `hook` before a request is forwarded; a response that it returns is the answer instead."""
        self._before.append((method, re.compile(path), hook))

    def after(self, method: str, path: str, hook: Hook) -> None:
        """Call `hook` when the server has answered and the client doesn't know it yet."""
        self._after.append((method, re.compile(path), hook))

    async def call(self, hooks: list[tuple[str, re.Pattern[str], Hook]], request: web.Request) -> web.Response | None:
        for method, path, hook in hooks:
            if method == request.method and path.search(request.path) and (answer := await hook(request)) is not None:
                return answer
        return None


@contextlib.asynccontextmanager
async def proxied(kubeconfig: Path, folder: Path) -> AsyncIterator[Proxy]:
    """A proxy before the API server of `kubeconfig`; its own kubeconfig is written into `folder`."""
    server, tls = _upstream(kubeconfig)
    proxy = Proxy(folder / "proxied-kubeconfig")
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0), auto_decompress=False
    ) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            proxy.seen.append(f"{request.method} {request.path}")
            if answer := await proxy.call(proxy._before, request):
                return answer
            return await _forward(proxy, session, server, request)

        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        proxy.kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port}")))
        try:
            yield proxy
        finally:
            await runner.cleanup()


async def _forward(
    proxy: Proxy, session: aiohttp.ClientSession, server: str, request: web.Request
) -> web.StreamResponse:
    headers = {name: value for name, value in request.headers.items() if name.lower() in ("accept", "content-type")}
    async with session.request(
        request.method,
        server + request.path_qs,
        data=await request.read() or None,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
    ) as upstream:
        if "watch" not in request.query:
            body = await upstream.read()
            await proxy.call(proxy._after, request)
            return web.Response(status=upstream.status, body=body, content_type=upstream.content_type)
        response = web.StreamResponse(status=upstream.status, headers={"Content-Type": upstream.content_type})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the client has ended its watch
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
        return response


def _upstream(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        for part in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[part]))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return config["clusters"][0]["cluster"]["server"], tls


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxied",
        "clusters": [{"name": "proxied", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "nobody"}}],
    }
