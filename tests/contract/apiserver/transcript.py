"""Ask an API server over HTTP, and write down what it answered in a form that two servers can be compared by.

What differs by nature is replaced by tokens in the order of appearance: uids, versions, times, generated names. Two
servers that behave alike then have equal transcripts. The client is the standard library's: what judges the embedded
server must not depend on asyncop.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

Json = Any
LIMIT = 10.0
"""Seconds to wait for what is sure to come."""

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_NUMBER = re.compile(r"\b\d{3,}\b")
_ADDRESS = re.compile(r"(?<!\d)10\.\d+\.\d+\.\d+")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and how to be let in."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    token: str = ""
    compact: Callable[[], object] | None = None
    """Makes the server forget the past."""

    def connect(self, timeout: float = LIMIT) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def headers(self, **more: str) -> dict[str, str]:
        headers = {"User-Agent": "tester/1", **more}
        return headers | {"Authorization": f"Bearer {self.token}"} if self.token else headers


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Json

    @property
    def metadata(self) -> Json:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return str(self.metadata["resourceVersion"])


class Caller:
    """One case's talk with one server, in a namespace of its own."""

    def __init__(self, endpoint: Endpoint, namespace: str) -> None:
        self.namespace = namespace
        self._endpoint, self._connection = endpoint, endpoint.connect()
        self._spoken = Transcript(namespace)

    def transcript(self) -> list[Json]:
        return self._spoken.lines

    def compact(self) -> None:
        assert self._endpoint.compact is not None
        self._endpoint.compact()

    def close(self) -> None:
        self._connection.close()

    # paths

    def core(self, plural: str, name: str = "", below: str = "") -> str:
        return _path("/api/v1", self.namespace, plural, name, below)

    def api(self, group: str, plural: str, name: str = "", below: str = "") -> str:
        return _path(f"/apis/{group}", self.namespace, plural, name, below)

    def note(self, line: Json) -> None:
        """Write down a part of an answer."""
        self._spoken.add(line)

    # requests

    def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content: str = "",
        accept: str = "",
        quiet: bool = False,
        **query: Json,
    ) -> Answer:
        """Ask and write down the answer; `quiet` only asks."""
        url = f"{path}?{urlencode(query)}" if query else path
        headers = self._endpoint.headers(Accept=accept or "application/json")
        if body is not None:
            headers["Content-Type"] = content or "application/json"
        payload = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        self._connection.request(method, url, payload, headers)
        response = self._connection.getresponse()
        text = response.read()
        kind = response.getheader("Content-Type", "")
        answer = Answer(
            response.status, dict(response.getheaders()), json.loads(text) if "json" in kind else text.decode()
        )
        if not quiet:
            warnings = response.headers.get_all("Warning") or []
            self._spoken.add(
                {
                    "asked": f"{method} {url}",
                    "status": answer.status,
                    "type": kind,
                    "warnings": warnings,
                    "body": answer.body,
                }
            )
        return answer

    def get(self, path: str, **query: Json) -> Answer:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Json, **query: Json) -> Answer:
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: Json, **query: Json) -> Answer:
        return self.call("PUT", path, body, **query)

    def delete(self, path: str, body: Json = None, **query: Json) -> Answer:
        return self.call("DELETE", path, body, **query)

    def patch(self, path: str, body: Json, content: str = MERGE, **query: Json) -> Answer:
        return self.call("PATCH", path, body, content=content, **query)

    def apply(self, path: str, body: Json, manager: str = "applier", **query: Json) -> Answer:
        return self.call("PATCH", path, body, content=APPLY, fieldManager=manager, **query)

    @contextlib.contextmanager
    def watch(self, path: str, *, accept: str = "application/json", **query: Json) -> Iterator[Watch]:
        """An open watch; what is read from it is written down."""
        connection = self._endpoint.connect()
        url = f"{path}?{urlencode({'watch': 'true', **query})}"
        connection.request("GET", url, headers=self._endpoint.headers(Accept=accept))
        response = connection.getresponse()
        try:
            if response.status != 200:
                self._spoken.add(
                    {"asked": f"WATCH {url}", "status": response.status, "body": json.loads(response.read())}
                )
            yield Watch(response, self._spoken)
        finally:
            response.close()
            connection.close()


class Watch:
    def __init__(self, response: http.client.HTTPResponse, spoken: Transcript) -> None:
        self.response, self._spoken = response, spoken
        self.status = response.status

    def read(self, count: int = 1) -> list[Json]:
        """The next events, which must come within the limit."""
        events = [json.loads(self.response.readline() or "null") for _ in range(count)]
        for event in events:
            self._spoken.add({"event": event})
        return events

    def rest(self) -> list[Json]:
        """All events until the server ends the stream."""
        events = [json.loads(line) for line in self.response]
        for event in events:
            self._spoken.add({"event": event})
        return events


def _path(prefix: str, namespace: str, plural: str, name: str, below: str) -> str:
    parts = [prefix, "namespaces", namespace, plural, name, below]
    return "/".join(part for part in parts if part)


@dataclass
class Transcript:
    """What was said, with tokens for what differs by nature."""

    namespace: str
    lines: list[Json] = field(default_factory=list)
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, line: Json) -> None:
        self.lines.append(self._plain(line, ""))

    def _token(self, kind: str, value: str) -> str:
        known = self._known.setdefault((kind, value), f"<{kind}-{sum(1 for k, _ in self._known if k == kind) + 1}>")
        return known

    def _plain(self, value: Json, key: str) -> Json:
        if isinstance(value, dict):
            if "items" in value and isinstance(value.get("metadata"), dict):  # others write to that server too
                unversioned = {name: item for name, item in value["metadata"].items() if name != "resourceVersion"}
                value = {**value, "metadata": unversioned}
            plain = {self._text(name, ""): self._plain(item, name) for name, item in sorted(value.items())}
            if plain.get("generateName") and "name" in plain:
                plain["name"] = plain["generateName"] + "<generated>"
            return plain
        if isinstance(value, list) and key == "managedFields":  # ordered by times that a transcript hasn't got
            value = sorted(
                value, key=lambda entry: [entry.get(name, "") for name in ("operation", "manager", "subresource")]
            )
        if isinstance(value, list):
            return [self._plain(item, key) for item in value]
        return self._text(value, key) if isinstance(value, str) else value

    def _text(self, value: str, key: str) -> str:
        if key == "resourceVersion":
            return self._token("version", value)
        if key == "continue":
            return "<continue>"
        value = _UID.sub(lambda found: self._token("uid", found[0]), value.replace(self.namespace, "NS"))
        value = _ADDRESS.sub("<address>", _TIME.sub("<time>", value))
        if key in ("message", "asked"):
            value = re.sub(r"continue=[^&]+", "continue=…", value)
            value = value.partition("previously negative)")[0]  # what follows is a diff of Go structs
            value = re.sub(r'Invalid value: "\{.*\}": ', 'Invalid value: "{…}": ', value)
            value = _NUMBER.sub("<number>", value)
        return value
