"""The store: what is known of one resource in one scope, and its indexes.

Writer and readers are different types: only the reflector holds a `StoreWriter`; everybody else reads through a
`StoreView`, which shows one projection (or the untyped mapping) and never awaits. What a view returns may be older than
the server's truth by the delay of the watch; it is never older than what it returned before.

A change becomes a `Delta` that every subscriber gets in order. An object reborn under the same name gives two: the old
one's end, then the new one's appearance.
"""

from __future__ import annotations

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

    @classmethod
    def create(cls) -> tuple[Store, StoreWriter]:
        """An empty store and the only thing that may change it."""
        store = cls()
        return store, StoreWriter(store)

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

    def set(self, request: Request, old: Record | None, new: Record | None, *, is_initial: bool) -> None:
        """For the writer: replace a record, then indexes, then tell the subscribers."""
        self._keep(request, old, new)
        for index in self._indexes.values():
            index.replace(request, old, new)
        delta = Delta(request, old, new, is_initial)
        for subscriber in self._subscribers:
            try:
                subscriber(delta)
            except Exception:
                log.exception("Subscriber failed", namespace=request.namespace, name=request.name)

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
    """Applies what list and watch say. Versions of one object only go forward."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, record: Record, *, is_initial: bool = False) -> None:
        """Enter an object as the server has it; an older version than the one here is ignored."""
        metadata = record.metadata
        request = Request(metadata.namespace, metadata.name)
        old = self._store.get(request)
        if old is not None:
            if old.metadata.uid != metadata.uid:
                self._store.set(request, old, None, is_initial=is_initial)
                old = None
            elif not _is_newer(metadata.resource_version, old.metadata.resource_version):
                return
        self._store.set(request, old, record, is_initial=is_initial)

    def remove(self, metadata: ObjectMeta) -> None:
        """Take an object out, as a DELETED line says; one reborn meanwhile under the same name stays."""
        request = Request(metadata.namespace, metadata.name)
        old = self._store.get(request)
        if old is not None and (not metadata.uid or old.metadata.uid == metadata.uid):
            self._store.set(request, old, None, is_initial=False)

    def retain(self, seen: set[Request], namespace: str | None) -> None:
        """Take out what a complete list of the scope (a namespace, or None for all) no longer held.

        This is how deletions that fell into a gap of the watch are delivered.
        """
        for request, record in list(self._store.items(namespace)):
            if request not in seen:
                self._store.set(request, record, None, is_initial=False)


def _is_newer(version: str, than: str) -> bool:
    """Resource versions of one resource are ordered numbers (KEP-5504); opaque ones only tell equal from different."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
