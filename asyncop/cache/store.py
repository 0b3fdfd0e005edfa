"""The store: what is known of one resource in one scope, and its indexes.

Writer and readers are different types: only the reflector holds a `StoreWriter`; everybody else reads through a
`StoreView`, which shows one projection (or the untyped mapping) and never awaits. What a view returns may be older than
the server's truth by the delay of the watch; it is never older than what it returned before.

A change becomes a `Delta` that every subscriber gets in order. An object reborn under the same name gives two: the old
one's end, then the new one's appearance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from asyncop.api.errors import DecodeError
from asyncop.api.request import Request
from asyncop.client.wire import Record

if TYPE_CHECKING:
    from asyncop.api.meta import ObjectMeta

log = structlog.get_logger("asyncop.cache")

IndexFunction = Callable[[Any], Iterable[str]]
"""The keys of one object in one index; pure: it is called again with the old object to find its old keys."""


class Delta(NamedTuple):
    """One change of the store."""

    request: Request
    old: Record | None
    """None: the object appeared."""
    new: Record | None
    """None: the object is gone; `old` is what was last seen of it."""
    is_initial: bool = False
    """Part of the first list: backlog, not news."""
    writer: str = ""
    """The field manager whose write brought it, if it came as a write's answer: news for everybody else."""
    is_forced: bool = False
    """Somebody else's change is already part of what a write's answer brought; it counts although nothing differs."""
    is_echo: bool = False
    """The answer of a write that the watch has been quicker to bring: only tells whose write that was."""


Subscriber = Callable[[Delta], None]
Project = Callable[[Record], Any]
"""Turns a record into what one reader sees; raises DecodeError for an unreadable object."""


class _Index:
    """One table from index keys to requests."""

    def __init__(self, name: str, function: IndexFunction, project: Project) -> None:
        self.name, self._function, self._project = name, function, project
        self._table: dict[str, dict[Request, None]] = {}

    def requests(self, key: str) -> Iterable[Request]:
        return self._table.get(key, ())

    def replace(self, request: Request, old: Record | None, new: Record | None) -> None:
        before = self._keys(old)
        after = self._keys(new)
        for key in before - after:
            members = self._table.get(key)
            if members is not None and members.pop(request, request) is None and not members:
                del self._table[key]
        for key in after - before:
            self._table.setdefault(key, {})[request] = None

    def _keys(self, record: Record | None) -> frozenset[str]:
        if record is None:
            return frozenset()
        try:
            return frozenset(self._function(self._project(record)))
        except DecodeError:
            return frozenset()
        except Exception:
            log.exception("Index function failed", index=self.name, name=record.metadata.name)
            return frozenset()


class Store:
    """The shared state of one writer and its views; made by `create`."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, Record]] = {}
        self._size = 0
        self._raw_bytes = 0
        self._indexes: dict[tuple[str, IndexFunction, Project], _Index] = {}
        self._subscribers: list[Subscriber] = []
        self.heard_at = float("-inf")
        """Monotonic time of the last list, watch line or bookmark."""

    @classmethod
    def create(cls, keeps: Callable[[Record], bool] | None = None) -> tuple[Store, StoreWriter]:
        """An empty store and the only thing that may change it; what `keeps` refuses stays out, or leaves."""
        store = cls()
        return store, StoreWriter(store, keeps)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with every later Delta, in order. It must be quick and must not await.

        One that raises is logged and stays subscribed; the others are not affected.
        """
        self._subscribers.append(subscriber)

    def index(self, name: str, function: IndexFunction, project: Project) -> _Index:
        """The index of this function, made (also over what is already here) on the first call."""
        index = self._indexes.get((name, function, project))
        if index is None:
            index = self._indexes[name, function, project] = _Index(name, function, project)
            for request, record in self.items():
                index.replace(request, None, record)
        return index

    def get(self, request: Request) -> Record | None:
        """The record of a key."""
        space = self._spaces.get(request.namespace)
        return space.get(request.name) if space else None

    def items(self, namespace: str | None = None) -> Iterator[tuple[Request, Record]]:
        """All keys and records, or those of one namespace. Don't change the store while iterating."""
        spaces = self._spaces.items() if namespace is None else [(namespace, self._spaces.get(namespace, {}))]
        for space, records in spaces:
            for name, record in records.items():
                yield Request(space, name), record

    def __len__(self) -> int:
        return self._size

    @property
    def raw_bytes(self) -> int:
        """Bytes of JSON kept for untyped readers."""
        return self._raw_bytes

    def apply(self, delta: Delta) -> None:
        """For the writer: replace a record, then indexes, then tell the subscribers."""
        if delta.new is not delta.old:
            self._keep(delta.request, delta.old, delta.new)
            for index in self._indexes.values():
                index.replace(delta.request, delta.old, delta.new)
        for subscriber in self._subscribers:
            try:
                subscriber(delta)
            except Exception:
                log.exception("Subscriber failed", namespace=delta.request.namespace, name=delta.request.name)

    def _keep(self, request: Request, old: Record | None, new: Record | None) -> None:
        if old is not None:
            self._raw_bytes -= len(old.raw or b"")
        if new is not None:
            self._raw_bytes += len(new.raw or b"")
            self._spaces.setdefault(request.namespace, {})[request.name] = new
            self._size += old is None
        elif old is not None:
            space = self._spaces[request.namespace]
            del space[request.name]
            self._size -= 1
            if not space:
                del self._spaces[request.namespace]


class StoreWriter:
    """Applies what list, watch and the answers of writes say. Versions of one object only go forward.

    The answer of a write enters at once, so that whoever wrote reads it back. The watch brings the same version later,
    which then is no news. What the watch brings in between was somebody else's change, on top of which the write was
    made: its content is here already, but it still has to wake whoever listens.

    Only a server that was restored from a backup makes versions go back; `is_beyond` tells.
    """

    def __init__(self, store: Store, keeps: Callable[[Record], bool] | None = None) -> None:
        self._store, self._keeps = store, keeps
        self._seen: dict[str, int] = {}  # by namespace ("": cluster), the last version of a list or watch
        self._written: dict[Request, set[str]] = {}  # versions that came as answers, until the watch has passed them

    def put(self, record: Record, *, is_initial: bool = False, is_restored: bool = False) -> None:
        """Enter an object as list or watch has it; an older version than the one here is ignored.

        Unless `is_restored`: then what the server has is entered, however old it looks.
        """
        metadata = record.metadata
        request = Request(metadata.namespace, metadata.name)
        old = self._store.get(request)
        is_own = self._is_own(request, metadata.resource_version)
        if old is not None:
            if old.metadata.uid != metadata.uid:
                self._store.apply(Delta(request, old, None, is_initial))
                old = None
            elif not (is_restored or _is_newer(metadata.resource_version, old.metadata.resource_version)):
                if not is_own and request in self._written:
                    self._store.apply(Delta(request, old, old, is_forced=True))
                return
        self._enter(Delta(request, old, record, is_initial))

    def put_written(self, record: Record, writer: str, namespace: str | None, *, only_known: bool) -> None:
        """Enter the answer of a write, if the watch of its scope hasn't come past it.

        `only_known`: the scope's selectors can't be judged here, so only an object that is known already is replaced.
        """
        metadata = record.metadata
        request = Request(metadata.namespace, metadata.name)
        old = self._store.get(request)
        version = metadata.resource_version
        if old is not None and old.metadata.resource_version == version:
            self._store.apply(Delta(request, old, old, writer=writer, is_echo=True))
            return
        if not version.isdecimal() or int(version) <= self._seen.get(namespace or "", 0):
            return
        if old is None:
            if only_known:
                return
        elif old.metadata.uid != metadata.uid or not _is_newer(version, old.metadata.resource_version):
            return
        self._written.setdefault(request, set()).add(version)
        self._enter(Delta(request, old, record, writer=writer))

    def _enter(self, delta: Delta) -> None:
        """Apply what brings a new version, as an end if the scope doesn't keep it."""
        if self._keeps is not None and delta.new is not None and not self._keeps(delta.new):
            if delta.old is None:
                return
            delta = delta._replace(new=None)
        self._store.apply(delta)

    def remove(self, metadata: ObjectMeta) -> None:
        """Take an object out, as a DELETED line says; one reborn meanwhile under the same name stays."""
        request = Request(metadata.namespace, metadata.name)
        self._written.pop(request, None)
        old = self._store.get(request)
        if old is not None and (not metadata.uid or old.metadata.uid == metadata.uid):
            self._store.apply(Delta(request, old, None))

    def retain(self, seen: set[Request], namespace: str | None, version: str) -> None:
        """Take out what a complete list of the scope (a namespace, or None for all), as of `version`, no longer held.

        This is how deletions that fell into a gap of the watch are delivered. What was written after the list stays.
        """
        for request, record in list(self._store.items(namespace)):
            if request not in seen and not _is_later(record.metadata.resource_version, version):
                self._written.pop(request, None)
                self._store.apply(Delta(request, record, None))

    def reached(self, version: str, namespace: str | None) -> None:
        """List or watch of a scope has come to `version`: answers of older writes are history from now on."""
        self._store.heard_at = time.monotonic()
        if version.isdecimal():
            self._seen[namespace or ""] = max(int(version), self._seen.get(namespace or "", 0))

    def is_beyond(self, version: str, namespace: str | None) -> bool:
        """Whether list or watch of a scope had come further than `version`, that of a fresh list."""
        return version.isdecimal() and int(version) < self._seen.get(namespace or "", 0)

    def restarted(self, namespace: str | None) -> None:
        """Forget how far list and watch of a scope had come: the server was restored."""
        self._seen.pop(namespace or "", None)

    def _is_own(self, request: Request, version: str) -> bool:
        """Whether this version came as the answer of a write before; forgets those that the watch has passed."""
        written = self._written.get(request)
        if written is None:
            return False
        is_own = version in written
        left = {other for other in written if _is_later(other, version)}
        if left:
            self._written[request] = left
        else:
            del self._written[request]
        return is_own


def _is_newer(version: str, than: str) -> bool:
    """Resource versions of one resource are ordered numbers (KEP-5504); opaque ones only tell equal from different."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


def _is_later(version: str, than: str) -> bool:
    """Whether `version` is known to be later; of opaque versions nothing is known."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
