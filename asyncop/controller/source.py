"""Sources: the other kinds that a reconciler reads, and which of their changes wake it.

A source is also the handle of its store where a kind appears twice: `ctx.store(source)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from asyncop.api.meta import ObjectMeta
from asyncop.api.object import Object
from asyncop.api.request import Request
from asyncop.api.resource import ResourceSelector
from asyncop.api.selectors import Labels, field_selector, label_selector

if TYPE_CHECKING:
    from asyncop.cache.store import IndexFunction
    from asyncop.controller.predicate import PredicateFunction

Kind = type[Object] | str | tuple[str, ...]
"""An `Object` class, or a selector as in Kopf: `"pods"`, `"deployments.apps"`, `("apps", "v1", "deployments")`."""

Mapper = Callable[..., Iterable[Any]]
"""`(new, old, ctx) -> objects or Requests`; sync, reads only `ctx.store`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """What every source declares; equal declarations share one watch."""

    kind: Kind
    labels: Labels | None = None
    fields: str | Mapping[str, str] | None = None
    namespaces: tuple[str, ...] | None = None
    """None: those of the operator (`-n`); cluster-scoped kinds have none."""
    predicates: tuple[PredicateFunction, ...] = ()
    indexes: Mapping[str, IndexFunction] = field(default_factory=dict)
    optional: bool = False
    """An optional source never keeps the operator from being ready."""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        label_selector(self.labels)
        field_selector(self.fields)


@dataclass(frozen=True, eq=False, kw_only=True)
class Watch(Source):
    """A change of the kind wakes what the mapper returns."""

    mapper: Mapper


@dataclass(frozen=True, eq=False, kw_only=True)
class Owns(Source):
    """A change of a child wakes the owner that its controller reference names."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Source):
    """Cached, wakes nothing."""


class Selection(TypedDict, total=False):
    """What `owns`, `watch` and `read` take besides the kind; see `Source`."""

    labels: Labels | None
    fields: str | Mapping[str, str] | None
    namespaces: Iterable[str] | None
    predicates: Iterable[PredicateFunction]
    indexes: Mapping[str, IndexFunction]
    optional: bool


def watch(kind: Kind, mapper: Mapper, **selection: Unpack[Selection]) -> Watch:
    """Wake what `mapper(new, old, ctx)` returns whenever an object of `kind` appears, changes or goes.

    One of `new` and `old` is None when it appeared or went. The mapper is sync and must be quick; one that raises is
    logged and wakes nothing. Takes `labels, fields, namespaces, predicates, indexes, optional`.
    """
    return Watch(kind=kind, mapper=mapper, **_checked(selection))


def owns(kind: Kind, **selection: Unpack[Selection]) -> Owns:
    """Wake the owner whenever a child of `kind` with our controller reference appears, changes or goes.

    Takes `labels, fields, namespaces, predicates, indexes, optional`.
    """
    return Owns(kind=kind, **_checked(selection))


def read(kind: Kind, **selection: Unpack[Selection]) -> Read:
    """Keep `kind` in the cache for `ctx.store(kind)`; its changes wake nothing.

    Takes `labels, fields, namespaces, predicates, indexes, optional`.
    """
    return Read(kind=kind, **_checked(selection))


def check_kind(kind: Kind) -> None:
    """Raises TypeError for what can't name a kind, ValueError for a selector of no known form."""
    if isinstance(kind, type):
        if not hasattr(kind, "__resource__"):
            raise TypeError(f"{kind.__name__} is no asyncop.Object class with api_version and kind")
    elif isinstance(kind, (str, tuple)):
        ResourceSelector.parse(kind)
    else:
        raise TypeError(f"{kind!r} names no kind; give an asyncop.Object class or a selector such as 'pods'")


def as_request(target: Any) -> Request:
    """The key of what a mapper returned: a Request, a (namespace, name) pair, an object or its metadata."""
    if isinstance(target, tuple):
        return Request(*target)
    metadata = target if isinstance(target, ObjectMeta) else target.metadata
    return Request(metadata.namespace, metadata.name)


def _checked(selection: Selection) -> dict[str, Any]:
    checked: dict[str, Any] = dict(selection)
    check_arguments(checked, Selection.__annotations__, "a source")
    for name in ("namespaces", "predicates"):
        if checked.get(name) is not None:
            checked[name] = as_tuple(name, checked[name])
    return checked


def check_arguments(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises TypeError for an argument that `what` doesn't take; the message names those it does."""
    for name in given:
        if name not in known:
            raise TypeError(f"unknown argument {name!r}; {what} takes {', '.join(known)}")


def as_tuple(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values; a single string, which would be taken apart letter by letter, is a TypeError."""
    if isinstance(values, str):
        raise TypeError(f"{name} is a list, not a single string: [{values!r}]")
    return tuple(values)
