"""Faults on demand: what goes wrong between a client and an API server, one method each.

Reached as `server.faults`. Every method may be called from any thread and is in force when it returns. What it does
lasts until `lift()`, unless its docstring says otherwise. A resource is named as in `deployments.apps`; None means
all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from asyncop.testing.refusals import RefusedError, Who, expired, forbidden
from asyncop.testing.streaming import reset_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncop.testing.objects import Objects
    from asyncop.testing.requests import Address
    from asyncop.testing.streaming import Stream, Streams

_ANSWERS = {
    401: ("Unauthorized", "Unauthorized"),
    404: ("NotFound", "the server could not find the requested resource"),
    410: ("Expired", "The resourceVersion for the provided watch is too old."),
    429: ("TooManyRequests", "The server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: a fault was asked for"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "The request did not complete within the allotted timeout"),
}


@dataclass(slots=True)
class _Rule:
    """One disturbance of requests."""

    action: str
    resource: str | None
    verb: str | None
    times: int | None
    status: int = 0
    retry_after: float | None = None
    delay: float = 0.0

    def applies(self, resource: str, verb: str) -> bool:
        return self.resource in (None, resource) and self.verb in (None, verb) and self.times != 0


class Faults:
    """The faults of one server."""

    def __init__(self, call: Callable[[Callable[[], object]], object]) -> None:
        self._call = call
        self._rules: list[_Rule] = []
        self._tokens: set[str] = set()
        self._lets_in_anybody = False
        self._objects: Objects | None = None
        self._streams: Streams | None = None

    def attach(self, objects: Objects, streams: Streams) -> None:
        """The server's own: what the faults act on."""
        self._objects, self._streams = objects, streams

    # requests

    def answer(
        self,
        status: int,
        resource: str | None = None,
        *,
        verb: str | None = None,
        times: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Answer with a Status of this code (401, 403, 404, 410, 429, 500, 503 or 504) instead of what was asked.

        Args:
            status: the code; a 403 also makes access reviews say no.
            resource: which requests; open watches go on, see `end_watches`.
            verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`; all without it.
            times: lifts itself after so many answers.
            retry_after: seconds, sent as Retry-After; for 429 it is 1 without it.
        """
        self._add(_Rule("answer", resource, verb, times, status, retry_after))

    def delay(
        self, seconds: float, resource: str | None = None, *, verb: str | None = None, times: int | None = None
    ) -> None:
        """Begin to serve requests so much later."""
        self._add(_Rule("delay", resource, verb, times, delay=seconds))

    def reset(self, resource: str | None = None, *, verb: str | None = None, times: int | None = None) -> None:
        """Drop the connection of a request without an answer, after the request was read and before it is served."""
        self._add(_Rule("reset", resource, verb, times))

    def hang(self, resource: str | None = None, *, verb: str | None = None, times: int | None = None) -> None:
        """Read requests and never answer, with the connection left open; lifting doesn't free those that hang."""
        self._add(_Rule("hang", resource, verb, times))

    def _add(self, rule: _Rule) -> None:
        self._call(lambda: self._rules.append(rule))

    def lift(self) -> None:
        """End all disturbances of requests and let held events go; silent streams and revoked tokens stay so."""

        def undo() -> None:
            self._rules.clear()
            self._release()

        self._call(undo)

    # tokens

    def revoke(self, token: str) -> None:
        """Refuse a token (401) from now on, for good, and with it requests that carry none."""

        def undo() -> None:
            self._tokens.discard(token)
            self._lets_in_anybody = False

        self._call(undo)

    def accept(self, token: str) -> None:
        """Accept one more token, as after a rotation."""
        self._call(lambda: self._tokens.add(token))

    # versions

    def expire_versions(self, resource: str | None = None) -> None:
        """Compact: watches from earlier versions get ERROR 410 in their stream, old continue tokens HTTP 410.

        Open watches go on, as on a real server. Happens once.
        """
        self._call(lambda: self._objects and self._objects.storage.compact(resource))

    # open watches

    def cut(self, resource: str | None = None) -> None:
        """End each open watch in the middle of its next line, with its connection."""
        self._each(resource, lambda stream: setattr(stream, "cut_next", True))

    def reset_watches(self, resource: str | None = None) -> None:
        """Drop the connection of each open watch at once."""
        self._each(resource, lambda stream: stream.reset())

    def end_watches(self, resource: str | None = None) -> None:
        """End each open watch properly, as a server does when their time is over."""
        self._each(resource, lambda stream: stream.watcher.end())

    def fail_watches(self, resource: str | None = None, status: int = 410) -> None:
        """Send ERROR with this code into each open watch and end it."""
        self._each(resource, lambda stream: stream.watcher.fail(_refusal(status, None, None)))

    def go_silent(self, resource: str | None = None) -> None:
        """Write nothing more to the watches that are open now, for good, and leave their connections open."""
        self._each(resource, lambda stream: setattr(stream, "is_silent", True))

    def send_line(self, line: bytes, resource: str | None = None) -> None:
        """Send these bytes and a line end to each open watch: a line that isn't JSON, an object of the wrong form."""

        def send(stream: Stream) -> None:
            stream.watcher.lines.append(line + b"\n")
            stream.watcher.wake.set()

        self._each(resource, send)

    def hold_events(self) -> None:
        """Keep all events and bookmarks back, of new watches too, until `release_events()`; then they come in order."""

        def hold() -> None:
            if self._streams is not None:
                self._streams.is_holding = True
                for stream in self._streams.open:
                    stream.watcher.held = True

        self._call(hold)

    def release_events(self) -> None:
        """Send what was held back."""
        self._call(self._release)

    def _release(self) -> None:
        if self._streams is not None:
            self._streams.is_holding = False
            for stream in self._streams.open:
                stream.watcher.held = False
                stream.watcher.wake.set()

    def _each(self, resource: str | None, act: Callable[[Stream], None]) -> None:
        def run() -> None:
            for stream in tuple(self._streams.open if self._streams else ()):
                if resource in (None, stream.watcher.kind.qualified):
                    act(stream)

        self._call(run)

    # what the server asks

    def forbids(self, plural: str, group: str) -> bool:
        """Whether access to a resource is denied right now."""
        name = f"{plural}.{group}" if group else plural
        return any(rule.status == 403 and rule.resource in (None, name) and rule.times != 0 for rule in self._rules)

    def require(self, token: str, *, strict: bool) -> None:
        """Accept this bearer token; unless strict, requests without any too."""
        self._tokens.add(token)
        self._lets_in_anybody = not strict

    def _knows(self, authorization: str | None) -> bool:
        if authorization is None:
            return self._lets_in_anybody
        return authorization.removeprefix("Bearer ") in self._tokens

    def disturbs(
        self, request: web.BaseRequest, address: Address | None
    ) -> Awaitable[web.StreamResponse | None] | None:
        """What to await before a request is served; an answer from it is the answer.

        Raises:
            RefusedError: the answer.
        """
        if not self._knows(request.headers.get("Authorization")):
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        if not self._rules or address is None:
            return None
        resource = f"{address.plural}.{address.group}" if address.group else address.plural
        verb = _verb(request, address)
        rule = next((rule for rule in self._rules if rule.applies(resource, verb)), None)
        if rule is None:
            return None
        if rule.times is not None:
            rule.times -= 1
        if rule.action == "answer":
            raise _refusal(rule.status, rule.retry_after, address)
        return _disturb(rule, request)


async def _disturb(rule: _Rule, request: web.BaseRequest) -> web.StreamResponse | None:
    if rule.action == "delay":
        await asyncio.sleep(rule.delay)
        return None
    if rule.action == "hang":
        await asyncio.Event().wait()  # ends with the connection or the server
    await request.read()
    reset_connection(request.transport)
    return web.Response(status=500)


def _verb(request: web.BaseRequest, address: Address) -> str:
    if request.method == "GET":
        if address.name:
            return "get"
        return "watch" if request.query.get("watch") in ("1", "true", "True") else "list"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(request.method, "")


def _refusal(status: int, retry_after: float | None, address: Address | None) -> RefusedError:
    if status == 403 and address is not None:
        who = Who(address.group, address.plural, "", address.name)
        return forbidden(who, f'User "tester" cannot access resource "{address.plural}"')
    if status == 410:
        return expired("too old resource version: a fault was asked for")
    reason, message = _ANSWERS[status]
    seconds = retry_after if retry_after is not None else (1 if status == 429 else None)
    return RefusedError(status, reason, message, {"retryAfterSeconds": seconds} if seconds else None)
