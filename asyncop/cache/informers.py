"""Informers: one watch a resource and scope, shared by everybody who reads it.

A scope is the resource, the namespaces and the selectors. Readers are declared before an informer starts, since they
decide what is decoded: the declared fields of some classes, the raw bytes, or both. Namespaces are watched as one where
`namespaces` is None, else one by one into the same store; one that we may not read holds back nobody else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from asyncop.api.errors import AsyncopError, DecodeError, ForbiddenError, GoneError, NotFoundError
from asyncop.api.object import Object, is_metadata_only
from asyncop.api.selectors import label_matcher
from asyncop.cache.reflector import ByteStream, Reflector
from asyncop.cache.store import Delta, IndexFunction, Store, StoreWriter
from asyncop.cache.view import StoreView, typed_projection, untyped_projection
from asyncop.client.wire import Codec
from asyncop.metrics.cache import CacheMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from asyncop.api.resource import Resource
    from asyncop.api.selectors import Matcher
    from asyncop.client import Client
    from asyncop.client.wire import Record

log = structlog.get_logger("asyncop.cache")

_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_JSON = "application/json"


class Scope(NamedTuple):
    """What a watch covers; readers of equal scopes share it."""

    resource: Resource
    namespaces: tuple[str, ...] | None
    """None: the whole cluster, or the only scope of a cluster-scoped kind."""
    labels: str = ""
    """Sent to the server, as `fields` is."""
    fields: str = ""
    match: str = ""
    """Labels that are matched in process: others are not stored, unless they carry `finalizer`."""
    finalizer: str = ""


@dataclass(slots=True)
class _Source:
    """The list and watch calls of one informer in one namespace (None: all)."""

    client: Client
    scope: Scope
    namespace: str | None
    is_metadata_only: bool

    def _params(self, params: Mapping[str, str]) -> dict[str, str]:
        selectors = {"labelSelector": self.scope.labels, "fieldSelector": self.scope.fields}
        return {**params, **{name: selector for name, selector in selectors.items() if selector}}

    async def list_page(self, params: Mapping[str, str]) -> bytes:
        accept = _PARTIAL_LIST if self.is_metadata_only else _JSON
        return await self.client.list_page(self.scope.resource, self.namespace or "", self._params(params), accept)

    def open_watch(self, params: Mapping[str, str], *, timeout: float) -> AbstractAsyncContextManager[ByteStream]:
        accept = _PARTIAL if self.is_metadata_only else _JSON
        return self.client.open_watch(
            self.scope.resource, self.namespace or "", self._params(params), accept, timeout=timeout, idle=None
        )

    async def is_answered_by_api(self) -> bool:
        try:
            return b'"APIGroupList"' in await self.client.raw("GET", "/apis")
        except AsyncopError:
            return False


@dataclass(slots=True)
class _ReflectorEvents:
    """One reflector's reports: sync state, metrics, one log line for each failure."""

    informer: Informer
    namespace: str | None

    def on_synced(self) -> None:
        self.informer._synced(self.namespace)

    def on_event(self) -> None:
        self.informer.metrics.event_seen()
        self.informer._recovered(self.namespace)

    def on_failure(self, verb: str, error: Exception, delay: float) -> None:
        self.informer._failed(self.namespace, verb, error, delay)

    def on_restart(self, reason: str) -> None:
        self.informer.metrics.restarted(reason)


@dataclass(slots=True)
class Informer:
    """A store, the reflectors that fill it, and what its readers want of it."""

    client: Client
    scope: Scope
    store: Store = field(init=False)
    metrics: CacheMetrics = field(init=False)
    failures: dict[str | None, str] = field(default_factory=dict)
    """By namespace (None: all), why its latest list or watch failed; empty while all is well."""
    _writer: StoreWriter = field(init=False)
    _codec: Codec = field(init=False)
    _matches: Matcher | None = field(init=False)
    _classes: list[type[Object]] = field(default_factory=list)
    _keep_raw: bool = False
    _unsynced: set[str | None] = field(init=False)
    _failing: dict[str | None, str] = field(default_factory=dict)
    """By namespace, the verb of which `failures` tells."""
    _gone: set[str | None] = field(default_factory=set)
    _forbidden: set[str] = field(default_factory=set)
    _sync: asyncio.Event = field(default_factory=asyncio.Event)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    on_late: list[Callable[[], None]] = field(default_factory=list)
    """Called when a namespace that was forbidden has been listed after all."""
    is_started: bool = False

    def __post_init__(self) -> None:
        self.store, self._writer = Store.create(self._keeps() if self.scope.match else None)
        self._matches = label_matcher(self.scope.labels) if self.scope.labels else None
        self._unsynced = set(self.scope.namespaces or [None])
        self.metrics = CacheMetrics(self.scope.resource.group_resource)
        self.store.subscribe(self._report_unreadable)

    def _keeps(self) -> Callable[[Record], bool]:
        matches, finalizer = label_matcher(self.scope.match), self.scope.finalizer
        return lambda record: matches(record.metadata.labels) or finalizer in record.metadata.finalizers

    def view(self, cls: type[Object] | None, indexes: Mapping[str, IndexFunction]) -> StoreView[Any]:
        """A reader's view: of a class, or (None) untyped. Must be asked for before the informer starts."""
        label = cls.__name__ if cls else self.scope.resource.group_resource
        if cls is None:
            self._keep_raw = True
            project = untyped_projection(self.scope.resource.api_version, self.scope.resource.kind)
            return StoreView(self.store, project, indexes, label)
        if cls not in self._classes:
            self._classes.append(cls)
        return StoreView(self.store, typed_projection(self._classes.index(cls)), indexes, label)

    @property
    def is_synced(self) -> bool:
        """Whether a complete list of every namespace of the scope has been applied once."""
        return self._sync.is_set()

    async def wait_synced(self) -> None:
        """Wait until `is_synced`."""
        await self._sync.wait()

    async def wait_settled(self) -> None:
        """Wait until every namespace of the scope has been listed once, or is one that we may not read."""
        await self._settled.wait()

    def holds_back(self, namespace: str) -> bool:
        """Whether what an object of `namespace` needs of this kind may be in a namespace that isn't listed yet."""
        return bool(self._unsynced) and (namespace in self._unsynced or namespace not in (self.scope.namespaces or ()))

    def start(self) -> Callable[[], Awaitable[None]]:
        """Take no more readers; returns `run`, to be run as a task."""
        self.is_started = True
        self._codec = Codec(tuple(self._classes), keep_raw=self._keep_raw)
        return self.run

    async def run(self) -> None:
        """Reflect until cancelled. Failures of the server are retried for ever and shown in `failures`."""
        self.metrics.watch(
            objects=lambda: len(self.store),
            raw_bytes=lambda: self.store.raw_bytes,
            failing=lambda: [(namespace or "", verb) for namespace, verb in self._failing.items()],
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for namespace in self.scope.namespaces or [None]:
                    name = f"reflector {self.scope.resource.group_resource} {namespace or 'cluster'}"
                    tasks.create_task(self._reflector(namespace).run(), name=name)
        finally:
            self.metrics.close()

    def _reflector(self, namespace: str | None) -> Reflector:
        metadata_only = not self._keep_raw and all(is_metadata_only(cls) for cls in self._classes)
        source = _Source(self.client, self.scope, namespace, metadata_only)
        return Reflector(source, self._writer, self._codec, _ReflectorEvents(self, namespace), namespace)

    def observe_write(self, data: bytes, writer: str) -> None:
        """Enter the answer of a write of this resource, if it belongs to the scope, so that it is read back at once."""
        try:
            record = self._codec.decode_item(data)
        except DecodeError:
            return  # the watch will bring it, and tell
        namespaces = self.scope.namespaces
        namespace = record.metadata.namespace if namespaces is not None else None
        if namespaces is not None and namespace not in namespaces:
            return
        if self._matches is not None and not self._matches(record.metadata.labels):
            return  # it leaves the scope, if it was in it: the watch tells
        self._writer.put_written(record, writer, namespace, only_known=bool(self.scope.fields))

    def _synced(self, namespace: str | None) -> None:
        self._recovered(namespace)
        if namespace not in self._unsynced:
            return
        self._unsynced.discard(namespace)
        if not self._unsynced:
            self._sync.set()
            log.debug("Cache synced", resource=self.scope.resource.group_resource, objects=len(self.store))
        if self._settled.is_set():
            for call in self.on_late:
                call()
        self._settle()

    def _settle(self) -> None:
        if all(namespace in self._forbidden for namespace in self._unsynced):
            self._settled.set()

    def _recovered(self, namespace: str | None) -> None:
        self._gone.discard(namespace)
        self._failing.pop(namespace, None)
        if self.failures.pop(namespace, None):
            log.info("Recovered list and watch", resource=self.scope.resource.group_resource, namespace=namespace)

    def _failed(self, namespace: str | None, verb: str, error: Exception, delay: float) -> None:
        """One line for each try, but only one for a kind that is gone: it may be so for ever."""
        resource = self.scope.resource.group_resource
        is_known = isinstance(error, NotFoundError) and namespace in self._gone
        if isinstance(error, NotFoundError):
            self._gone.add(namespace)
        else:
            self._gone.discard(namespace)
        if isinstance(error, ForbiddenError) and namespace is not None:
            self._forbidden.add(namespace)
            self._settle()
        self._failing[namespace] = verb
        self.failures[namespace] = f"{resource}{f' in {namespace}' if namespace else ''}: can't {verb}: {error}"
        report = log.debug if is_known or isinstance(error, GoneError) else log.warning
        what = {"resource": resource, "namespace": namespace, "verb": verb}
        report("Could not list or watch", **what, err=str(error), retry_in=round(delay, 1))

    def _report_unreadable(self, delta: Delta) -> None:
        """One line for each new reason, however often an unreadable object changes."""
        known = self._faults(delta.old)
        for fault in self._faults(delta.new):
            if fault in known:
                continue
            log.error(
                "Object is unreadable",
                resource=self.scope.resource.group_resource,
                namespace=delta.request.namespace,
                name=delta.request.name,
                err=fault,
            )

    def _faults(self, record: Record | None) -> list[str]:
        """Why readers can't read a record."""
        if record is None:
            return []
        faults = [str(view) for view in record.views if isinstance(view, DecodeError)]
        if self._keep_raw and record.raw is None and not faults:
            faults.append(f"{self.scope.resource.kind}: it is nested too deep to be read")
        return faults


class Informers:
    """All informers of one process. Readers of a scope share one, unless it runs already when they come."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._all: list[Informer] = []
        client.on_write.append(self._observe_write)

    def get(self, scope: Scope) -> Informer:
        """The informer of a scope that still takes readers; one that has started decodes for those it has."""
        for informer in self.unstarted():
            if informer.scope == scope:
                return informer
        informer = Informer(self._client, scope)
        self._all.append(informer)
        return informer

    def _observe_write(self, resource: Resource, data: bytes, writer: str) -> None:
        for informer in self._all:
            if informer.is_started and informer.scope.resource == resource:
                informer.observe_write(data, writer)

    def __iter__(self) -> Iterator[Informer]:
        return iter(self._all)

    def unstarted(self) -> list[Informer]:
        """Those that nobody runs yet."""
        return [informer for informer in self._all if not informer.is_started]
