"""What a reconcile function gets besides its object."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

import structlog

from asyncop.api.errors import ConfigError
from asyncop.api.meta import to_wire, without_none
from asyncop.api.object import Object
from asyncop.api.resource import ResourceSelector
from asyncop.api.untyped import UntypedObject
from asyncop.controller.ownership import Applied, apply_child
from asyncop.controller.recorder import Recorder, Regarding
from asyncop.controller.source import Source
from asyncop.controller.status import StagedStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from asyncop.api.meta import ObjectMeta
    from asyncop.api.request import Request
    from asyncop.api.resource import Resource
    from asyncop.cache.view import StoreView
    from asyncop.client import Client

ObjectT = TypeVar("ObjectT", bound=Object)

_log = structlog.get_logger("asyncop.controller")


@dataclass(slots=True)
class DeclaredView:
    """One kind that a controller declared, once its resource is known."""

    view: StoreView[Any]
    resource: Resource


class Stores:
    """The views that one controller declared, by kind and by source."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._views: dict[Any, DeclaredView] = {}

    def add(self, kind: Any, source: Source | None, declared: DeclaredView) -> None:
        """Make a view known by its kind (the first declaration wins, if its kind is there) and by its source."""
        first = self._views.get(_key(kind))
        if first is None or not first.resource.plural:
            self._views[_key(kind)] = declared
        if source is not None:
            self._views[source] = declared

    def view(self, kind: Any, namespace: str) -> StoreView[Any]:
        """The view of a kind or source.

        Raises:
            ConfigError: it wasn't declared; the message says what to declare.
        """
        declared = self._views.get(kind if isinstance(kind, Source) else _key(kind))
        if declared is None:
            label = kind.__name__ if isinstance(kind, type) else repr(kind)
            raise ConfigError(
                f"{self._controller} reads {label} but doesn't declare it; add asyncop.read({label}) to its sources="
            )
        return declared.view.within(namespace if declared.resource.namespaced else "")

    def of(self, resource: Resource) -> StoreView[Any] | None:
        """A view of a resource, if it was declared in whatever way."""
        return next((declared.view for declared in self._views.values() if declared.resource == resource), None)


def _key(kind: Any) -> Any:
    return kind if isinstance(kind, type) else ResourceSelector.parse(kind)


class MapContext:
    """What a mapper may use: the stores that its controller declared."""

    __slots__ = ("_namespace", "_stores")

    def __init__(self, stores: Stores, namespace: str = "") -> None:
        self._stores, self._namespace = stores, namespace

    @overload
    def store(self, kind: type[ObjectT]) -> StoreView[ObjectT]: ...
    @overload
    def store(self, kind: str | tuple[str, ...] | Source) -> StoreView[UntypedObject]: ...
    def store(self, kind: Any) -> StoreView[Any]:
        """The cached objects of a declared kind; read at once, possibly a little stale."""
        return self._stores.view(kind, self._namespace)


@dataclass(slots=True)
class Services:
    """What the contexts of one controller share."""

    name: str
    client: Client
    stores: Stores
    recorder: Recorder
    options: Any = None
    memos: dict[str, dict[str, Any]] = field(default_factory=dict)
    applied: dict[str, Applied] = field(default_factory=dict)
    """By owner's uid."""
    regarding: Callable[[Any], Regarding] = field(default=lambda obj: Regarding("", "", obj.metadata))
    """How an object is named in Events and owner references; set once its resource is known."""

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object; nothing of it may outlive it."""
        self.memos.pop(uid, None)
        self.applied.pop(uid, None)


class Context(MapContext):
    """What a reconcile function gets besides its object. One per run; don't keep it."""

    __slots__ = ("_log", "_services", "attempt", "client", "obj", "options", "request", "staged")

    request: Request
    """Namespace and name of the object."""
    obj: Any
    """The object of this run, as it was given to the function."""
    staged: StagedStatus | None
    """What `status` and `condition` have staged so far, if anything."""
    client: Client
    """For writes and live reads; each call has a time limit and retries what is safe to retry."""
    attempt: int
    """0, or how many runs of this key have failed in a row before this one."""

    def __init__(self, services: Services, request: Request, obj: Any, attempt: int) -> None:
        super().__init__(services.stores, request.namespace)
        self._services = services
        self.obj = obj
        self._log: FilteringBoundLogger | None = None
        self.staged = None
        self.request, self.attempt = request, attempt
        self.client, self.options = services.client, services.options

    @property
    def log(self) -> FilteringBoundLogger:
        """A logger bound to the controller, the object and this run."""
        if self._log is not None:
            return self._log
        bound: FilteringBoundLogger = _log.bind(
            controller=self._services.name,
            namespace=self.request.namespace,
            name=self.request.name,
            reconcileID=uuid.uuid4().hex[:8],
        )
        self._log = bound
        return bound

    @property
    def memo(self) -> dict[str, Any]:
        """A dict of this object's uid, for what is cheap to lose: dropped with the object and with the process."""
        return self._services.memos.setdefault(self.obj.metadata.uid, {})

    def now(self) -> float:
        """Monotonic seconds: the event loop's clock."""
        return asyncio.get_running_loop().time()

    async def require_leadership(self) -> None:
        """Return if a destructive call may be made now.

        Raises:
            LeaseLostError: the lead may be lost. Without leader election there is nothing to lose.
        """
        self.client.check_gate()

    @overload
    def owned(self, kind: type[ObjectT]) -> list[ObjectT]: ...
    @overload
    def owned(self, kind: str | tuple[str, ...] | Source) -> list[UntypedObject]: ...
    def owned(self, kind: Any) -> list[Any]:
        """The cached children of a declared kind: those that have this object's uid among their owners."""
        return self._services.stores.view(kind, self.request.namespace).owned(self.obj.metadata.uid)

    async def apply(self, child: Any) -> Any:
        """Make a child as it is described, with this object as its controller; returns it as it is then.

        A server-side apply with force, by the field manager of this controller. Nothing is sent if the same was applied
        last and the cached child is as it was after that.

        Args:
            child: an Object or a mapping that says what you want and nothing else; its namespace defaults to the
                owner's.

        Raises:
            ValueError: it came from a store, or lives where this object can't own it.
            ApiError: the server refused.
        """
        services = self._services
        applied = services.applied.setdefault(self.obj.metadata.uid, {})
        owner = services.regarding(self.obj)
        return await apply_child(self.client, services.stores, owner, child, applied)

    def status(self, **fields: Any) -> None:
        """Stage status fields by their Python names; written after the run, also if it raises, if they differ.

        By nothing but the order of lists, or a `lastHeartbeat`, `lastHeartbeatTime` or `lastProbeTime`, they don't.
        """
        self.staged = self.staged or StagedStatus()
        self.staged.set_fields({name: without_none(to_wire(value)) for name, value in fields.items()})

    def condition(self, type: str, status: bool | str, reason: str, message: str = "") -> None:
        """Stage one condition; written like `status`. Conditions of others are not touched.

        `status` is a bool or `True`, `False`, `Unknown`; `reason` is UpperCamelCase.
        """
        self.staged = self.staged or StagedStatus()
        self.staged.set_condition(type, str(status), reason, message)

    def event(self, reason: str, message: str, type: str = "Normal", obj: Any = None) -> None:
        """Queue a Kubernetes Event about this object (or another one); never raises.

        `reason` is UpperCamelCase, `message` one line, `type` Normal or Warning.
        """
        self._services.recorder.record(self._services.regarding(obj or self.obj), reason, message, type)


def regarding_of(default: tuple[str, str]) -> Callable[[Any], Regarding]:
    """How objects of a controller are named in Events: classes know their kind, mappings carry it."""

    def regarding(obj: Any) -> Regarding:
        if isinstance(obj, Object):
            options = obj.__resource__
            return Regarding(options.api_version, options.kind, obj.metadata)
        metadata: ObjectMeta = obj.metadata
        if isinstance(obj, UntypedObject) and "kind" in obj:
            return Regarding(str(obj["apiVersion"]), str(obj["kind"]), metadata)
        return Regarding(*default, metadata)

    return regarding
