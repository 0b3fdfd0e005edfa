"""An embedded API server for a case: in the test's own loop, with everything that was asked of it written down.

In one loop with the operator the clock may be virtual (`looptime`): minutes of backoff pass in no time. What a fault of
the server can't do, a hook does, which answers in the server's place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from aiohttp import web

from asyncop.metrics.registry import REGISTRY
from asyncop.testing import ApiServer
from asyncop.testing.objects import Intent
from tests.contract.operating import operating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import asyncop

    Hook = Callable[["Asked"], Awaitable[web.Response | None]]

MERGE = "application/merge-patch+json"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TICK = 2.0**-20
"""Of virtual time: sums of it have no rounding errors, so a time that is due has come and not nearly come."""

PATIENCE = 15.0
"""Real seconds that a case waits for what is sure to come, however much virtual time passes."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Asked(NamedTuple):
    """One request of the operator."""

    at: float
    """Seconds of the server's loop."""
    verb: str
    path: str
    query: dict[str, str]
    agent: str
    """Who asked: `asyncop/NAME`, by the operator's name."""

    @property
    def resource(self) -> str:
        """The plural, of whatever group and namespace."""
        parts = [part for part in self.path.split("/") if part]
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if len(parts) > 2 and parts[0] == "namespaces":
            parts = parts[2:]
        return parts[0] if parts else ""


class World:
    """A server, what it was asked by others than the test, and the test's own hand on it."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.faults = server, server.faults
        self.asked: list[Asked] = []
        self._folder = folder
        self._front = server._front
        self._hooks: list[Hook] = []
        server._front = self  # type: ignore[assignment]
        self._session: aiohttp.ClientSession
        self.unheard: frozenset[str] = frozenset()
        """Parameters that the server doesn't get to see."""

    @property
    def kubeconfig(self) -> Path:
        return self.server.write_kubeconfig(self._folder / "kubeconfig")

    def instead(self, hook: Hook) -> None:
        """Let `hook` look at each request of the operator first; what it returns is the answer."""
        self._hooks.append(hook)

    def count(self, verb: str, resource: str, since: float = 0.0) -> int:
        return sum(each.verb == verb and each.resource == resource and each.at >= since for each in self.asked)

    def writes(self, since: float = 0.0) -> list[Asked]:
        """Whatever changes something at the server; access reviews don't."""
        return [
            each
            for each in self.asked
            if each.verb in _VERBS.values() and each.at >= since and "reviews" not in each.resource
        ]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("User-Agent") != "case":
            now, agent = asyncio.get_running_loop().time(), request.headers.get("User-Agent", "")
            asked = Asked(now, _verb(request), request.path, dict(request.query), agent)
            self.asked.append(asked)
            for hook in self._hooks:
                if (answer := await hook(asked)) is not None:
                    return answer
            if self.unheard:
                request = request.clone(rel_url=request.rel_url.without_query_params(*self.unheard))
        return await self._front.handle(request)

    async def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """A request of the test itself; AssertionError if it fails."""
        headers = {"User-Agent": "case", "Content-Type": MERGE if method == "PATCH" else content}
        data = json.dumps(body) if body is not None else None
        async with self._session.request(method, self.server.url + path, data=data, headers=headers) as response:
            answer = await response.json()
            assert response.status < 300, answer
            return answer

    async def create_many(self, path: str, bodies: Iterable[dict[str, Any]]) -> None:
        """Objects in a collection, as quickly as the server takes them."""
        await asyncio.gather(*(self.call("POST", path, body) for body in bodies))

    async def create(self, path: str, name: str, body: dict[str, Any] | None = None, **metadata: Any) -> Any:
        """An object in a collection."""
        return await self.call("POST", path, {**(body or {}), "metadata": {"name": name, **metadata}})

    async def namespaces(self, *names: str) -> None:
        for name in names:
            await self.create("/api/v1/namespaces", name)

    async def define_widgets(self, group: str = "example.com", kind: str = "Widget") -> None:
        """A custom kind in which everything is allowed, with a status."""
        plural = f"{kind.lower()}s"
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
        version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
        version["schema"] = {"openAPIV3Schema": schema}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        await self.create(DEFINITIONS, f"{plural}.{group}", {"spec": spec})

    def operating(
        self, namespace: str | None, *reconcilers: asyncop.Reconciler[Any], **options: Any
    ) -> AbstractAsyncContextManager[asyncop.Manager]:
        """See `tests.contract.operating`."""
        return operating(self.kubeconfig, namespace, *reconcilers, **options)


@contextlib.asynccontextmanager
async def embedded(folder: Path, **options: Any) -> AsyncIterator[World]:
    """A server in the running loop."""
    server = ApiServer(**options)
    world = World(server, folder)
    async with server, aiohttp.ClientSession() as session:
        world._session = session
        yield world


async def until(condition: Callable[[], bool], what: str, step: float = 0.05) -> None:
    """Poll until it holds; AssertionError after as much real time as nothing here takes."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        await asyncio.sleep(step)


class Stored(NamedTuple):
    """An object of a core kind, for `store`."""

    plural: str
    namespace: str
    name: str
    body: dict[str, Any] = {}  # noqa: RUF012 - never changed
    labels: dict[str, str] = {}  # noqa: RUF012


def store(server: ApiServer, objects: Iterable[Stored]) -> None:
    """Put thousands of objects straight into a server: by HTTP that would take longer than what they are for."""
    kept = server._objects

    def put() -> None:
        for plural, namespace, name, body, labels in objects:
            obj = {**body, "metadata": {"name": name, "labels": labels}}
            kept.create(kept.catalog.find("", "v1", plural), namespace, obj, Intent("case"))

    server._in_loop(put)


def metric(name: str, **labels: str) -> float | None:
    """What a scrape would say now, had it not been answered from what is a moment old."""
    return REGISTRY.get_sample_value(name, labels)


def refused(status: int, reason: str, message: str = "", **details: Any) -> web.Response:
    """A Status as the answer."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status}
    body |= {"reason": reason, "message": message or reason} | ({"details": details} if details else {})
    return web.json_response(body, status=status)


def _verb(request: web.BaseRequest) -> str:
    if request.method != "GET":
        return _VERBS.get(request.method, request.method)
    if request.query.get("watch") in ("1", "true"):
        return "watch"
    parts = [part for part in request.path.split("/") if part]
    below = len(parts) - (2 if parts and parts[0] == "api" else 3)
    if below > 2 and parts[-below] == "namespaces":
        below -= 2
    return "list" if below == 1 else "get"
