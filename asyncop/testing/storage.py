"""Everything the server holds: encoded objects by resource, one global version, and the history watches read.

Objects are kept as the bytes that are answered; nobody changes them. The version rises by one with each write, over
all resources, as etcd's revision does. History is bounded by count and by `compact()`; who asks for more gets 410.
One event loop owns all of it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncop.testing.schema import Obj

HISTORY = 20_000
"""Changes a resource remembers; at 2 KB an object that is 40 MB."""

FIRST_VERSION = 1000
"""Where versions start: older ones are expired, as on any server that has lived."""


class Stored:
    """One object at one version."""

    __slots__ = ("key", "labels", "raw", "version")

    def __init__(self, key: str, version: int, raw: bytes, labels: dict[str, str]) -> None:
        self.key, self.version, self.raw, self.labels = key, version, raw, labels

    def decode(self) -> Obj:
        """A fresh object that the caller may change."""
        return msgspec.json.decode(self.raw)  # type: ignore[no-any-return]

    def at(self, version: int) -> Stored:
        """The same object under another version."""
        obj = self.decode()
        obj["metadata"]["resourceVersion"] = str(version)
        return Stored(self.key, version, msgspec.json.encode(obj), self.labels)


@dataclass(slots=True, eq=False)
class Change:
    """One write: what was, what is. Both is an update, only `new` a creation, only `old` a deletion."""

    version: int
    key: str
    old: Stored | None
    new: Stored | None
    last: Stored | None = None
    """A deleted object as its DELETED event shows it: with the deletion's own version."""
    lines: dict[Any, bytes] = field(default_factory=dict)
    """Lines already encoded, for all watchers alike."""


class Collection:
    """The objects of one resource, sorted by key, and what happened to them lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        self.history: deque[Change] = deque()
        self.compacted = clock.compacted
        """Changes up to this version are forgotten."""
        self.listeners: list[Callable[[Change], None]] = []

    def put(self, key: str, obj: Obj) -> Stored:
        """Write under a new version, which is put into the object's metadata."""
        version = self._clock.tick()
        obj["metadata"]["resourceVersion"] = str(version)
        raw = msgspec.json.encode(obj)
        labels = obj["metadata"].get("labels") or _NONE
        stored = Stored(key, version, raw, self._clock.shared(labels))
        old = self.objects.get(key)
        if old is None:
            insort(self.keys, key)
        self.objects[key] = stored
        self._record(Change(version, key, old, stored))
        return stored

    def remove(self, key: str) -> Stored:
        """Delete; its last event shows the object as it was kept, under the version of the deletion."""
        old = self.objects.pop(key)
        del self.keys[bisect_left(self.keys, key)]
        last = old.at(self._clock.tick())
        self._record(Change(last.version, key, old, None, last))
        return last

    def _record(self, change: Change) -> None:
        self.history.append(change)
        if len(self.history) > HISTORY:
            self.compacted = self.history.popleft().version
        for listener in tuple(self.listeners):
            listener(change)

    def compact(self, version: int) -> None:
        """Forget the changes up to and including `version`."""
        while self.history and self.history[0].version <= version:
            self.history.popleft()
        self.compacted = max(self.compacted, version)

    def since(self, version: int) -> Iterator[Change]:
        """The changes after `version`, oldest first."""
        return (change for change in tuple(self.history) if change.version > version)

    def at(self, version: int) -> tuple[list[str], dict[str, Stored]]:
        """Keys and objects as they were at `version`, which must not be compacted."""
        if not self.history or self.history[-1].version <= version:
            return self.keys, self.objects
        objects = dict(self.objects)
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.old is None:
                del objects[change.key]
            else:
                objects[change.key] = change.old
        return sorted(objects), objects


_NONE: dict[str, str] = {}


class Clock:
    """The global version. Equal label sets are one dict, for most Pods carry the labels of many."""

    def __init__(self) -> None:
        self.now = FIRST_VERSION
        self.compacted = FIRST_VERSION
        """Up to where resources are compacted that have no objects yet."""
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def tick(self) -> int:
        """The next version."""
        self.now += 1
        return self.now

    def shared(self, labels: dict[str, str]) -> dict[str, str]:
        """The one dict for these labels."""
        if not labels:
            return _NONE
        if len(self._labels) > HISTORY:
            self._labels.clear()
        return self._labels.setdefault(tuple(sorted(labels.items())), labels)


class Storage:
    """All collections under one clock. A collection exists from the first time it is asked for."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._collections: dict[str, Collection] = {}

    def collection(self, name: str) -> Collection:
        """By `plural.group`."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(self.clock)
        return found

    def drop(self, name: str) -> None:
        """Forget a resource that is no longer served; its objects must be gone."""
        self._collections.pop(name, None)

    def compact(self, name: str | None = None) -> int:
        """Forget the past of one resource or of all; returns the version up to which."""
        chosen = list(self._collections.values()) if name is None else [self.collection(name)]
        if name is None:
            self.clock.compacted = self.clock.now
        for collection in chosen:
            collection.compact(self.clock.now)
        return self.clock.now

    def names(self) -> list[str]:
        """Of the collections there are."""
        return list(self._collections)
