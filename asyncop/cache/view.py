"""What a reconciler sees of a store: `ctx.store(Pod)`.

Reads don't await and don't copy. Typed objects are the stored ones (frozen); untyped ones are decoded at each read.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asyncop.api.errors import ConfigError, DecodeError
from asyncop.api.request import Request
from asyncop.api.selectors import Labels, label_matcher, label_selector
from asyncop.api.untyped import UntypedObject

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Mapping

    from asyncop.api.meta import ObjectMeta
    from asyncop.api.object import Object
    from asyncop.cache.store import IndexFunction, Project, Store, Subscriber
    from asyncop.client.wire import Record

ViewT = TypeVar("ViewT")


@cache
def typed_projection(position: int) -> Project:
    """The projection of the codec's class at `position`."""

    def project(record: Record) -> Object:
        view = record.views[position]
        if isinstance(view, DecodeError):
            raise view
        return view

    return project


@cache
def untyped_projection(api_version: str, kind: str) -> Project:
    """The mapping that readers without a class see of a kind; with apiVersion and kind, which items of lists lack."""

    def project(record: Record) -> UntypedObject:
        if record.raw is None:
            raise DecodeError(f"{kind}: it is nested too deep to be read")
        return UntypedObject(record.raw, record.metadata, api_version=api_version, kind=kind)

    return project


def _owners(obj: Any) -> builtins.list[str]:
    return [owner.uid for owner in obj.metadata.owner_references]


class StoreView(Generic[ViewT]):
    """Reads of one kind, as one controller declared it."""

    def __init__(self, store: Store, project: Project, indexes: Mapping[str, IndexFunction], label: str) -> None:
        self._store, self._project, self._label = store, project, label
        self._indexes = {name: store.index(name, function, project) for name, function in indexes.items()}
        self._namespace = ""

    def within(self, namespace: str) -> StoreView[ViewT]:
        """The same view, for somebody who is at home in `namespace`."""
        view: StoreView[ViewT] = StoreView.__new__(StoreView)
        view._store, view._project, view._label = self._store, self._project, self._label
        view._indexes, view._namespace = self._indexes, namespace
        return view

    def get(self, name: str, namespace: str | None = None) -> ViewT | None:
        """The object, or None if it isn't there; of the request's namespace unless another is named.

        Raises:
            DecodeError: it is there but doesn't fit its class.
        """
        return self.at(Request(self._namespace if namespace is None else namespace, name))

    def at(self, request: Request) -> ViewT | None:
        """The object of a key, as `get`."""
        record = self._store.get(request)
        return None if record is None else self._project(record)

    def list(self, namespace: str | None = None, labels: Labels | None = None) -> builtins.list[ViewT]:
        """The objects of a namespace, or all that are cached, that match `labels`; unreadable ones are left out."""
        matches = label_matcher(label_selector(labels)) if labels else None
        return list(
            self._readable(
                record
                for _, record in self._store.items(namespace)
                if matches is None or matches(record.metadata.labels)
            )
        )

    def by_index(self, index: str, key: str) -> builtins.list[ViewT]:
        """The objects whose keys in `index` include `key`; unreadable ones are in no index.

        Raises:
            ConfigError: the index wasn't declared for this kind.
        """
        table = self._indexes.get(index)
        if table is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise ConfigError(f"{self._label} has no index {index!r} here (declared: {known}); add it to indexes=")
        records = (self._store.get(request) for request in table.requests(key))
        return list(self._readable(record for record in records if record is not None))

    def owned(self, uid: str) -> builtins.list[ViewT]:
        """The objects with an owner of that uid; unreadable ones are left out."""
        table = self._store.index("owner", _owners, self._project)
        records = (self._store.get(request) for request in table.requests(uid))
        return list(self._readable(record for record in records if record is not None))

    def metadata_at(self, request: Request) -> ObjectMeta | None:
        """The metadata of a key, readable or not."""
        record = self._store.get(request)
        return None if record is None else record.metadata

    def __len__(self) -> int:
        return len(self._store)

    def subscribe(self, subscriber: Subscriber) -> None:
        """See `Store.subscribe`."""
        self._store.subscribe(subscriber)

    def age(self) -> float:
        """Seconds since the server was last heard of: a change, a bookmark (each minute or so) or a list."""
        return time.monotonic() - self._store.heard_at

    def knows(self, request: Request) -> bool:
        """Whether the object is cached, readable or not."""
        return self._store.get(request) is not None

    def requests(self) -> builtins.list[Request]:
        """The keys of everything that is cached, unreadable objects too."""
        return [request for request, _ in self._store.items()]

    def project(self, record: Record) -> ViewT:
        """What this view shows of a record; raises DecodeError for an unreadable one."""
        view: ViewT = self._project(record)
        return view

    def _readable(self, records: Iterator[Record]) -> Iterator[Any]:
        for record in records:
            try:
                yield self._project(record)
            except DecodeError:
                continue  # reported when it entered the store
