"""The other side of the wire: a real HTTP server that answers what a test tells it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web
from aiohttp.test_utils import TestServer

if TYPE_CHECKING:
    import ssl

LONG = 10.0
"""Far more than anything in these tests takes: whoever waits for it hangs."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Received(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """Answers are used up in order; `routes` answer by path whenever they are asked."""

    received: list[Received] = field(default_factory=list)
    routes: dict[str, Answer] = field(default_factory=dict)
    _answers: deque[Answer] = field(default_factory=deque)
    _http: TestServer | None = None
    url: str = ""

    async def start(self, tls: ssl.SSLContext | None = None, port: int | None = None) -> str:
        """Begin to listen on the loopback; returns the base URL."""
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._http = TestServer(application, scheme="https" if tls else "http", port=port)
        await self._http.start_server(ssl=tls)
        self.url = str(self._http.make_url("")).rstrip("/")
        return self.url

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.close()

    def then(self, *answers: Answer) -> None:
        """Queue answers."""
        self._answers.extend(answers)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.received.append(
            Received(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        )
        answer = self.routes.get(request.path)
        if answer is None:
            if not self._answers:
                return web.json_response({"message": f"the test has no answer to {request.path}"}, status=418)
            answer = self._answers.popleft()
        return await answer(request)


def ok(body: Any = None, **headers: str) -> Answer:
    """200 with JSON, or with bytes as they are."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if isinstance(body, bytes):
            return web.Response(body=body, headers=headers)
        return web.json_response(body if body is not None else {}, headers=headers)

    return answer


def status(
    code: int, reason: str = "", message: str = "", *, headers: dict[str, str] | None = None, **more: Any
) -> Answer:
    """A failure with a Status body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message, **more}
        return web.json_response(body, status=code, headers=headers)

    return answer


async def never(request: web.Request) -> web.StreamResponse:
    """Not answer; the server cancels this when the client closes the connection."""
    await asyncio.Event().wait()
    raise AssertionError


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def lines(*events: Any, end: Answer | None = None) -> Answer:
    """A watch that sends these, then ends properly; or does what `end` does."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        if end is not None:
            await end(request)
        return response

    return answer
