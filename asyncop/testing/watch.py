"""Watches: which changes a client sees, as which events, encoded once for all who see the same.

A watch starts from a version, or with the objects there are; leaving a selector is DELETED, entering it is ADDED.
Lines wait in the watcher until its connection takes them: a client too slow for `BACKLOG` lines is cut off, as a real
server does, and has to catch up by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from asyncop.testing.catalog import present
from asyncop.testing.partial import partial
from asyncop.testing.refusals import Fault, RefusedError, Who, expired, invalid
from asyncop.testing.settle import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj
    from asyncop.testing.selecting import Selection
    from asyncop.testing.storage import Change, Collection, Stored

BACKLOG = 100_000
_OPTIONS = Who("meta.k8s.io", "", "ListOptions")
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """The parameters of a watch as they were sent."""

    version: str = ""
    match: str = ""
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: float = 1800.0
    partial: bool = False


class Watcher:
    """One client's watch on one collection. `close()` must be called when its connection ends."""

    def __init__(self, kind: Kind, collection: Collection, selection: Selection, query: WatchQuery) -> None:
        self.kind, self.selection, self.query = kind, selection, query
        self._collection = collection
        self._after = 0
        self.lines: deque[bytes] = deque()
        self.wake = asyncio.Event()
        self.ended = False
        """The stream is to end once the lines are out."""
        self.held = False
        """Events are kept back, by a fault; so are bookmarks."""

    def start(self, now: int) -> None:
        """Put down what comes first, and listen.

        Raises:
            RefusedError: the parameters can't be.
        """
        _check(self.query)
        version = int(self.query.version or 0)
        if self.query.initial_events is False:
            version = version or now
        self._after = version
        if self.query.initial_events or not version:
            self._send_initial(now)
        elif version < self._collection.compacted:
            text = f"too old resource version: {version} ({self._collection.compacted})"
            if self.kind.kind == "Event":  # which have no watch cache: these are the words of what is behind it
                text = "The resourceVersion for the provided watch is too old."
            self.fail(expired(text))
            return
        else:
            for change in self._collection.since(version):
                self.see(change)
        self._collection.listeners.append(self.see)

    def _send_initial(self, now: int) -> None:
        for key in self._collection.keys:
            stored = self._collection.objects[key]
            if self.selection.matches(stored):
                self.lines.append(_line(b"ADDED", self._show(stored)))
        if self.query.initial_events and self.query.bookmarks:
            self.bookmark(now, {_INITIAL_END: "true"})
        self.wake.set()

    def see(self, change: Change) -> None:
        """Take a change in; cheap for what isn't selected. A version from the future is waited for."""
        if change.version <= self._after:
            return
        was, is_ = self.selection.matches(change.old), self.selection.matches(change.new)
        if is_ and change.new is not None:
            self._put(change, b"MODIFIED" if was else b"ADDED", change.new)
        elif was and change.old is not None:
            self._put(change, b"DELETED", change.last or change.old.at(change.version))

    def _put(self, change: Change, kind: bytes, stored: Stored) -> None:
        known = (kind, self.kind.api_version, self.query.partial)
        line = change.lines.get(known)
        if line is None:
            line = change.lines[known] = _line(kind, self._show(stored))
        self.lines.append(line)
        self.ended = self.ended or len(self.lines) > BACKLOG
        self.wake.set()

    def _show(self, stored: Stored) -> bytes:
        raw = present(self.kind, stored)
        return partial(raw) if self.query.partial else raw

    def bookmark(self, now: int, annotations: Obj | None = None) -> None:
        """Tell the version up to which everything was sent."""
        metadata: Obj = {"resourceVersion": str(now)}
        if annotations:
            metadata["annotations"] = annotations
        if self.query.partial:
            obj: Obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        else:
            obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
            if self.kind.custom is None:
                obj, _ = settle(obj, self.kind.type, self.kind.kind, self.kind.version)
        self.lines.append(_line(b"BOOKMARK", msgspec.json.encode(obj)))
        self.wake.set()

    def fail(self, refusal: RefusedError) -> None:
        """Send an ERROR and end."""
        self.lines.append(_line(b"ERROR", refusal.encode().rstrip()))
        self.end()

    def end(self) -> None:
        """End the stream as the server's own timeout would."""
        self.ended = True
        self.wake.set()

    def take(self) -> bytes:
        """All lines that may be sent, at once."""
        self.wake.clear()
        if self.held:
            return b""
        taken = b"".join(self.lines)
        self.lines.clear()
        return taken

    def close(self) -> None:
        """Stop listening."""
        listeners: list[Callable[[Change], None]] = self._collection.listeners
        if self.see in listeners:
            listeners.remove(self.see)


def _line(kind: bytes, raw: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + raw + b"}\n"


def _check(query: WatchQuery) -> None:
    faults = []
    if query.initial_events is not None and query.match != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        faults.append(Fault("resourceVersionMatch", "FieldValueForbidden", text))
        if query.match:
            text = f'Unsupported value: "{query.match}": supported values: "NotOlderThan"'
            faults.append(Fault("resourceVersionMatch", "FieldValueNotSupported", text))
    elif query.initial_events is None and query.match:
        text = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        faults.append(Fault("resourceVersionMatch", "FieldValueForbidden", text))
    if faults:
        raise invalid(_OPTIONS, faults)
    if query.version and not query.version.isdigit():
        text = f'Invalid value: "{query.version}": strconv.ParseUint: parsing "{query.version}": invalid syntax'
        raise RefusedError(500, "", f"resourceVersion: {text}")
