"""What one controller reads, wired up: each declared kind gets its informer, its view, and what its changes trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from asyncop.api.errors import ForbiddenError, NotFoundError
from asyncop.api.resource import Resource
from asyncop.api.selectors import field_selector, label_selector
from asyncop.cache.informers import Informer, Informers, Scope
from asyncop.cache.store import Store
from asyncop.cache.view import StoreView, typed_projection
from asyncop.controller.context import DeclaredView, Stores
from asyncop.controller.source import Owns, Source, Watch
from asyncop.controller.trigger import Lens, mapped, owner, primary

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.api.request import Request
    from asyncop.cache.store import Delta, Subscriber
    from asyncop.client import Client
    from asyncop.controller.declaration import Reconciler


log = structlog.get_logger("asyncop.controller")

ABSENT = Resource(version="", plural="", kind="", namespaced=True)


class Triggers(NamedTuple):
    """Who is told of what."""

    primary: Callable[[Request, Delta], None]
    """A change, or the end, of an object of the controller's own kind."""
    source: Callable[[Request, Delta], None]
    """A key that a source wakes."""
    any_delta: Subscriber
    """Every delta of every kind that is read."""
    primary_delta: Subscriber
    """Every delta of the controller's own kind."""
    more_is_read: Callable[[], None]
    """A namespace that was forbidden has been listed after all."""


class Wiring:
    """What is read by one controller, once its kinds are known to the server."""

    def __init__(
        self, declared: Reconciler[Any], client: Client, namespaces: tuple[str, ...] | None, finalizer: str
    ) -> None:
        self._declared, self._client = declared, client
        self._namespaces, self._finalizer = namespaces, finalizer
        self.stores = Stores(declared.name)
        self._required: list[Informer] = []
        self.absent: list[Source] = []
        """Optional sources whose kinds the server doesn't have, or doesn't show."""
        self.resource: Resource
        self.view: StoreView[Any]

    async def connect(self, informers: Informers, triggers: Triggers) -> None:
        """Resolve every kind, then declare what is read and subscribe.

        If it raises, nothing has been declared and it may be called again.

        Raises:
            NotFoundError: the server doesn't know a kind (yet).
            ForbiddenError, TransportError: it can't be asked.
        """
        declared = self._declared
        resource = await self._client.resolve(declared.kind)
        sources = [(source, await self._resolve(source)) for source in declared.sources]
        self._connect_primary(informers, resource, triggers)
        for source, source_resource in sources:
            if source_resource is None:
                self._leave_out(source)
            else:
                self._connect_source(informers, source, source_resource, triggers)

    async def connect_absent(self, informers: Informers, triggers: Triggers) -> None:
        """Try again to connect the optional sources whose kinds weren't there."""
        for source in list(self.absent):
            resource = await self._resolve(source)
            if resource is not None:
                self.absent.remove(source)
                self._connect_source(informers, source, resource, triggers)

    async def _resolve(self, source: Source) -> Resource | None:
        """The resource of a source; None if it is optional and not there, or may not be seen."""
        try:
            return await self._client.resolve(source.kind)
        except (NotFoundError, ForbiddenError):
            if not source.optional:
                raise
            return None

    def _leave_out(self, source: Source) -> None:
        """An optional kind that isn't there reads as empty."""
        store, _ = Store.create()
        view: StoreView[Any] = StoreView(store, typed_projection(0), source.indexes, "absent kind")
        self.stores.add(source.kind, source, DeclaredView(view, ABSENT))
        self.absent.append(source)
        log.info("Optional kind is not there yet", controller=self._declared.name, kind=str(source.kind))

    def unsynced(self) -> list[str]:
        """What has not synced once, with the latest failure."""
        return [
            "; ".join(informer.failures.values()) or f"{informer.scope.resource.group_resource}: first list under way"
            for informer in self._required
            if not informer.is_synced
        ]

    async def wait_synced(self) -> None:
        """Wait until everything that is required has synced once."""
        for informer in self._required:
            await informer.wait_synced()

    async def wait_settled(self) -> None:
        """As `wait_synced`, but for namespaces that we may not read: `holds_back` tells of those."""
        for informer in self._required:
            await informer.wait_settled()

    def holds_back(self, namespace: str) -> bool:
        """Whether something that is required is not there yet for an object of `namespace` (empty: of the cluster)."""
        return any(informer.holds_back(namespace) for informer in self._required)

    def _connect_primary(self, informers: Informers, resource: Resource, triggers: Triggers) -> None:
        declared = self._declared
        view, lens = self._reader(informers, declared, None, resource, triggers)
        self.view, self.resource = view, resource
        view.subscribe(triggers.primary_delta)
        view.subscribe(primary(lens, declared.predicates, triggers.primary))

    def _connect_source(self, informers: Informers, source: Source, resource: Resource, triggers: Triggers) -> None:
        view, lens = self._reader(informers, source, source, resource, triggers)
        if isinstance(source, Watch):
            view.subscribe(mapped(lens, source.predicates, source.mapper, self.stores, triggers.source))
        elif isinstance(source, Owns):
            view.subscribe(owner(lens, source.predicates, self.resource, triggers.source))

    def _reader(
        self,
        informers: Informers,
        declared: Reconciler[Any] | Source,
        source: Source | None,
        resource: Resource,
        triggers: Triggers,
    ) -> tuple[StoreView[Any], Lens]:
        """Declare one kind that is read: its informer, its view, and how the view sees changes."""
        informer = informers.get(self._scope(declared, resource))
        if source is None or not source.optional:
            self._required.append(informer)
            informer.on_late.append(triggers.more_is_read)
        cls = declared.kind if isinstance(declared.kind, type) else None
        view = informer.view(cls, declared.indexes)
        view.subscribe(triggers.any_delta)
        self.stores.add(declared.kind, source, DeclaredView(view, resource))
        return view, Lens(view, cls, self._client.field_manager)

    def _scope(self, declared: Reconciler[Any] | Source, resource: Resource) -> Scope:
        namespaces = self._namespaces if declared.namespaces is None else declared.namespaces
        scope = Scope(
            resource,
            tuple(sorted(namespaces)) if namespaces is not None and resource.namespaced else None,
            label_selector(declared.labels),
            field_selector(declared.fields),
        )
        if declared is self._declared and self._finalizer and scope.labels:
            # What leaves the selector, even while we were down, must lose our finalizer: so it has to be seen.
            scope = scope._replace(labels="", match=scope.labels, finalizer=self._finalizer)
        return scope
