"""From a change of a store to the keys that must run.

A subscriber for each declared source. They are called synchronously by the store, so they only look and queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import DecodeError
from asyncop.api.meta import ObjectMeta
from asyncop.api.object import fields_of
from asyncop.api.request import Request
from asyncop.cache.store import Delta, Subscriber
from asyncop.controller.context import MapContext, Stores
from asyncop.controller.source import Mapper, as_request

if TYPE_CHECKING:
    from asyncop.api.object import Object
    from asyncop.api.resource import Resource
    from asyncop.cache.view import StoreView
    from asyncop.controller.predicate import PredicateFunction

PAUSED = "asyncop.dev/paused"
Enqueue = Callable[[Request, Delta], None]

_metadata_content = attrgetter(*(name for name in fields_of(ObjectMeta) if name != "resource_version"))


class Lens:
    """How one reader sees deltas: its projections, and whether anything that it declared changed.

    An update that leaves a typed projection equal but for resourceVersion is no change; status churn that nobody
    declared costs a decode and no more. Untyped readers see every update.
    """

    def __init__(self, view: StoreView[Any], cls: type[Object] | None, writer: str) -> None:
        self._view, self._writer = view, writer
        fields = [name for name in fields_of(cls) if name != "metadata"] if cls else []
        self._content: Callable[[Any], Any] = attrgetter(*fields) if fields else lambda obj: None
        self._is_typed = cls is not None

    def see(self, delta: Delta) -> tuple[Any, Any] | None:
        """(new, old) as this reader sees them, or None if nothing changed for it.

        An unreadable object is seen as None; when both are None there is nothing to tell. What the reader's own
        controller has written is no change for it; what somebody else wrote just before is, though it came in one.
        """
        if delta.is_echo or (delta.writer and delta.writer == self._writer):
            return None
        new, old = self._project(delta.new), self._project(delta.old)
        if new is None and old is None:
            return None
        if delta.is_forced:
            return new, old
        if self._is_typed and new is not None and old is not None and self._is_equal(new, old):
            return None
        return new, old

    def _project(self, record: Any) -> Any:
        if record is None:
            return None
        try:
            return self._view.project(record)
        except DecodeError:
            return None

    def _is_equal(self, new: Any, old: Any) -> bool:
        return bool(
            _metadata_content(new.metadata) == _metadata_content(old.metadata)
            and self._content(new) == self._content(old)
        )


def primary(lens: Lens, predicates: tuple[PredicateFunction, ...], enqueue: Enqueue) -> Subscriber:
    """Triggers the object itself; its end is told too, whatever the predicates say."""

    def subscriber(delta: Delta) -> None:
        seen = lens.see(delta)
        if delta.new is None or (seen is not None and (_pass(predicates, *seen) or _resumed(*seen))):
            enqueue(delta.request, delta)

    return subscriber


def mapped(
    lens: Lens, predicates: tuple[PredicateFunction, ...], mapper: Mapper, stores: Stores, enqueue: Enqueue
) -> Subscriber:
    """Triggers what the mapper returns; one that raises is logged by the store and triggers nothing."""

    def subscriber(delta: Delta) -> None:
        seen = lens.see(delta)
        if seen is None or not _pass(predicates, *seen):
            return
        targets: Iterable[Any] = mapper(*seen, MapContext(stores, delta.request.namespace)) or ()
        for target in targets:
            enqueue(as_request(target), delta)

    return subscriber


def owner(lens: Lens, predicates: tuple[PredicateFunction, ...], of: Resource, enqueue: Enqueue) -> Subscriber:
    """Triggers the owner that a child's controller reference names, and the one that it named before."""

    def subscriber(delta: Delta) -> None:
        seen = lens.see(delta)
        if seen is None or not _pass(predicates, *seen):
            return
        for name in {_owner_name(obj, of) for obj in seen} - {None}:
            enqueue(Request(delta.request.namespace if of.namespaced else "", str(name)), delta)

    return subscriber


def _pass(predicates: tuple[PredicateFunction, ...], new: Any, old: Any) -> bool:
    return new is None or all(predicate(new, old) for predicate in predicates)


def _resumed(new: Any, old: Any) -> bool:
    """A pause was set or lifted: no predicate may hide that, or what was held back would stay so."""
    if new is None or old is None:
        return False
    return bool(new.metadata.annotations.get(PAUSED) != old.metadata.annotations.get(PAUSED))


def _owner_name(obj: Any, of: Resource) -> str | None:
    reference = obj.metadata.controller if obj is not None else None
    if reference is None or reference.kind != of.kind:
        return None
    group = reference.api_version.rpartition("/")[0]  # any version of the kind is the same object
    return reference.name if group == of.group else None
