"""Which rights a declared reconciler needs: what it watches, what it says it uses, its finalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from asyncop.api.resource import Resource
    from asyncop.controller.declaration import Reconciler
    from asyncop.controller.source import Kind


CLUSTER = ("",)
"""Where rights on cluster-scoped resources, and on all namespaces at once, are needed."""


class Right(NamedTuple):
    """One verb on one resource; `resource` has the subresource after a slash, as in roles."""

    group: str
    resource: str
    verb: str
    namespaces: tuple[str, ...] | None
    """None: where the operator works (`-n`, or the whole cluster)."""


_VERBS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "get": (("get", ""),),
    "list": (("list", ""),),
    "watch": (("watch", ""),),
    "create": (("create", ""),),
    "apply": (("create", ""), ("patch", "")),
    "patch": (("patch", ""),),
    "patch_status": (("patch", "/status"),),
    "delete": (("delete", ""),),
    "evict": (("create", "/eviction"),),
    "scale": (("patch", "/scale"),),
}
"""By client call: verbs and the subresources that they are needed on."""


def check_calls(use: str) -> None:
    """Raise ValueError for a `uses` entry with a call that the client doesn't have."""
    for call in _calls(use)[0]:
        if call not in _VERBS:
            raise ValueError(f"uses: {call!r} is no call of the client; there are: {' '.join(_VERBS)}")


def of_reconciler(declared: Reconciler[Any], resolved: Callable[[Kind], Resource]) -> list[Right]:
    """Every right of a reconciler, each once, in the order of its declaration."""
    primary = resolved(declared.kind)
    rights = [*_watched(primary, declared.namespaces)]
    for source in declared.sources:
        rights += _watched(resolved(source.kind), source.namespaces)
    for kind, use in declared.uses.items():
        rights += _used(resolved(kind), use)
    if declared.finalize_function is not None:
        rights += _used(primary, "get patch")
    return list(dict.fromkeys(rights))


def _watched(resource: Resource, namespaces: tuple[str, ...] | None) -> Iterator[Right]:
    for verb in ("list", "watch"):
        yield Right(resource.group, resource.plural, verb, namespaces if resource.namespaced else CLUSTER)


def _used(resource: Resource, use: str) -> Iterator[Right]:
    calls, namespaces = _calls(use)
    for call in calls:
        for verb, subresource in _VERBS[call]:
            where = namespaces if resource.namespaced else CLUSTER
            yield Right(resource.group, resource.plural + subresource, verb, where)


def _calls(use: str) -> tuple[list[str], tuple[str, ...] | None]:
    """The calls and the namespaces of an entry such as `get patch` or `get in kube-node-lease`."""
    calls, _, namespaces = use.partition(" in ")
    return calls.split(), tuple(namespaces.replace(",", " ").split()) or None
