"""What a user declares: reconcilers and tasks.

A decorator returns an object that can still be called like the function. What the decorators make while a FILE is
loaded belongs to that load (`collecting`); there is no process-wide registry, so importing a module twice, or two
operators in one process, can't mix.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from asyncop.api.duration import parse_duration
from asyncop.api.errors import ConfigError
from asyncop.api.object import Object
from asyncop.api.request import Request, Result
from asyncop.api.resource import ResourceSelector
from asyncop.api.selectors import Labels, field_selector, label_selector
from asyncop.api.struct import Struct
from asyncop.controller.rights import check_calls
from asyncop.controller.source import Kind, Source, as_tuple, check_arguments, check_kind

if TYPE_CHECKING:
    from asyncop.api.untyped import UntypedObject
    from asyncop.cache.store import IndexFunction
    from asyncop.controller.context import Context
    from asyncop.controller.predicate import PredicateFunction

ObjectT = TypeVar("ObjectT", bound=Object)
AnyT = TypeVar("AnyT")
ParamsT = ParamSpec("ParamsT")

FollowUpT = TypeVar("FollowUpT", bound=Callable[..., Awaitable[Any]])

ReconcileFunction = Callable[[AnyT, "Context"], Awaitable[Result | None]]

WORKERS = 8
RESYNC = "10h"  # controller-runtime's SyncPeriod
TIMEOUT = "10m"


class Enqueue(Protocol):
    """How a running controller takes keys from outside of its loop."""

    def __call__(self, request: Request) -> None:
        """Queue the key; callable from any thread."""


@dataclass(eq=False, kw_only=True)
class Reconciler(Generic[AnyT]):
    """A declared reconciler; made by the `reconciler` decorator."""

    function: ReconcileFunction[AnyT]
    kind: Kind
    name: str
    sources: tuple[Source, ...] = ()
    uses: Mapping[Any, str] = field(default_factory=dict)
    labels: Labels | None = None
    fields: str | Mapping[str, str] | None = None
    namespaces: tuple[str, ...] | None = None
    predicates: tuple[PredicateFunction, ...] = ()
    indexes: Mapping[str, IndexFunction] = field(default_factory=dict)
    options: type[Struct] | None = None
    workers: int = WORKERS
    resync: float
    """Seconds."""
    timeout: float
    """Seconds."""
    finalize_function: Callable[[AnyT, Context], Awaitable[Any]] | None = None
    gone_function: Callable[[AnyT, Context], Awaitable[Any]] | None = None
    running: list[Enqueue] = field(default_factory=list, repr=False)
    """The controllers that run this declaration now, each by its way to take a key."""

    def __post_init__(self) -> None:
        check_async(self.function, self.name)
        label_selector(self.labels)
        field_selector(self.fields)
        for kind, calls in self.uses.items():
            check_kind(kind)
            check_calls(calls)
        options: Any = self.options  # which nobody's type checker may have seen
        if options is not None and not (isinstance(options, type) and issubclass(options, Struct)):
            raise TypeError(f"options={options!r}: give a class, as in class Options(asyncop.Struct)")
        if self.workers < 1:
            raise ValueError(f"reconciler {self.name}: workers={self.workers}; at least one is needed")

    async def __call__(self, obj: AnyT, ctx: Context) -> Result | None:
        """Run the function once, outside of any queue: of use in tests."""
        return await self.function(obj, ctx)

    def finalize(self, function: FollowUpT) -> FollowUpT:
        """Run `function` while an object is being deleted, until it succeeds; the object stays until then.

        Keeps a finalizer on every object that matches, set before the first run. It runs at least once, again after
        failures; PermanentError keeps the finalizer and says so in an Event. The reconciler's own function no longer
        runs for objects that are being deleted. Labels are matched in process, so that an object that leaves the
        selector, even while nobody ran, loses the finalizer.
        """
        if self.fields:
            raise ValueError(
                f"reconciler {self.name}: finalize can't be combined with fields=; use labels or predicates"
            )
        self.finalize_function = function
        return function

    def gone(self, function: FollowUpT) -> FollowUpT:
        """Run `function` with what was last seen of an object that is no longer there, or has left the selector.

        Best effort within one process, without a finalizer. For an object reborn under its name it runs before the
        first run for the new one.
        """
        self.gone_function = function
        return function

    def enqueue(self, namespace: str, name: str) -> None:
        """Let the object be reconciled soon; from any thread. Nothing happens while no controller runs this."""
        for enqueue in self.running:
            enqueue(Request(namespace, name))


@dataclass(eq=False, kw_only=True)
class Task(Generic[ParamsT]):
    """A declared task: an async function that runs for the operator's life."""

    function: Callable[ParamsT, Awaitable[None]]
    name: str
    leader: bool = True

    async def __call__(self, *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> None:
        """Run the function."""
        await self.function(*args, **kwargs)


@dataclass(eq=False)
class Declarations:
    """What one load declared."""

    reconcilers: list[Reconciler[Any]] = field(default_factory=list)
    tasks: list[Task[Any]] = field(default_factory=list)

    def add(self, declared: Reconciler[Any] | Task[Any]) -> None:
        """Take one in.

        Raises:
            ConfigError: there is one of that name already.
        """
        known: Sequence[Reconciler[Any] | Task[Any]]
        known = self.reconcilers if isinstance(declared, Reconciler) else self.tasks
        if any(other.name == declared.name for other in known):
            raise ConfigError(f"two controllers are named {declared.name!r}; give one of them another name=")
        if isinstance(declared, Reconciler):
            self.reconcilers.append(declared)
        else:
            self.tasks.append(declared)


_active: ContextVar[Declarations | None] = ContextVar("asyncop_declarations", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[Declarations]:
    """Collect what decorators make inside the block, and nothing made outside of it."""
    declarations = Declarations()
    token = _active.set(declarations)
    try:
        yield declarations
    finally:
        _active.reset(token)


def _declare(declared: Reconciler[Any] | Task[Any]) -> None:
    declarations = _active.get()
    if declarations is not None:
        declarations.add(declared)


class TypedDecorator(Protocol[ObjectT]):
    """Turns a function of a typed object into a Reconciler."""

    def __call__(self, function: ReconcileFunction[ObjectT]) -> Reconciler[ObjectT]:
        """See `reconciler`."""
        ...


class UntypedDecorator(Protocol):
    """Turns a function of an untyped object into a Reconciler."""

    def __call__(self, function: ReconcileFunction[UntypedObject]) -> Reconciler[UntypedObject]:
        """See `reconciler`."""
        ...


class ReconcilerOptions(TypedDict, total=False):
    """What `reconciler` takes besides the kind."""

    name: str | None
    sources: Iterable[Source]
    uses: Mapping[Any, str]
    labels: Labels | None
    fields: str | Mapping[str, str] | None
    namespaces: Iterable[str] | None
    predicates: Iterable[PredicateFunction]
    indexes: Mapping[str, IndexFunction]
    options: type[Struct] | None
    workers: int
    resync: str | float
    timeout: str | float


@overload
def reconciler(kind: type[ObjectT], **options: Unpack[ReconcilerOptions]) -> TypedDecorator[ObjectT]: ...
@overload
def reconciler(kind: str | tuple[str, ...], **options: Unpack[ReconcilerOptions]) -> UntypedDecorator: ...
def reconciler(kind: Kind, **options: Unpack[ReconcilerOptions]) -> Any:
    """Declare an async function that brings one object of `kind` to where it should be.

    The function is told which object, never what happened to it; it looks, compares, mends and is called again whenever
    something changed. It runs for one key once at a time; a change during a run causes one more. It returns None or
    `Result(requeue_after=seconds)`; `TemporaryError` runs it again after the error's delay, `PermanentError` not before
    something new triggers it, any other exception after a backoff (0.1 s to 5 min, reset by success).

    Args:
        kind: an `Object` class, or a selector such as `"deployments.apps"` (then the object is a read-only mapping).
        **options: `name` of the controller (default: the function's); `sources`: `owns(…)`, `watch(…)`, `read(…)`;
            `uses`: `{kind: "get patch delete"}`, the client calls that the function makes, perhaps only in some
            namespaces (`"get in kube-node-lease"`); `labels` and `fields`: sent
            to the server; `namespaces`: instead of the operator's `-n`; `predicates`: functions of (new, old) that all
            must hold for a change to trigger; `indexes`: `{name: object -> keys}` for `ctx.store(kind).by_index`;
            `options`: a Struct that `ctx.options` is an instance of, filled from the configuration; `workers` (8): how
            many objects at once; `resync` (`"10h"`, 0: never): how often every object is looked at again, spread over
            that time; `timeout` (`"10m"`) of one run, which counts as a failure.
    """
    check_kind(kind)  # here, since `@reconciler` without a kind would never come to the rest
    given: dict[str, Any] = dict(options)
    check_arguments(given, ReconcilerOptions.__annotations__, "a reconciler")
    for name in ("sources", "namespaces", "predicates"):
        if given.get(name) is not None:
            given[name] = as_tuple(name, given[name])
    given["resync"] = parse_duration(given.get("resync", RESYNC))
    given["timeout"] = parse_duration(given.get("timeout", TIMEOUT))

    def decorate(function: ReconcileFunction[Any]) -> Reconciler[Any]:
        name = given.get("name") or getattr(function, "__name__", "reconciler")
        arguments: dict[str, Any] = given | {"name": name}
        declared: Reconciler[Any] = Reconciler(function=function, kind=kind, **arguments)
        _declare(declared)
        return declared

    return decorate


@overload
def task(function: Callable[ParamsT, Awaitable[None]], /) -> Task[ParamsT]: ...
@overload
def task(
    *, leader: bool = True, name: str | None = None
) -> Callable[[Callable[ParamsT, Awaitable[None]]], Task[ParamsT]]: ...
def task(function: Any = None, /, *, leader: bool = True, name: str | None = None) -> Any:
    """Declare an async function that runs for the operator's life; it takes nothing, or the operator's `Client`.

    It is cancelled at the end. One that returns is done; one that raises takes the process down with exit code 1.
    `leader=False` runs it on every replica.
    """

    def decorate(function: Callable[..., Awaitable[None]]) -> Task[Any]:
        check_async(function, getattr(function, "__name__", "task"))
        declared: Task[Any] = Task(function=function, name=name or function.__name__, leader=leader)
        _declare(declared)
        return declared

    return decorate if function is None else decorate(function)


def check_async(function: Callable[..., Any], name: str) -> None:
    """Raises TypeError for a plain `def`, also behind a decorator; a lambda may return what an async function does."""
    function = inspect.unwrap(function)
    if inspect.isfunction(function) and function.__name__ != "<lambda>" and not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} must be async: async def {function.__name__}(…)")


def kind_label(kind: Kind) -> str:
    """How people read a kind in messages."""
    return kind.__name__ if isinstance(kind, type) else str(ResourceSelector.parse(kind))
