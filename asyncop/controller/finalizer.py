"""Finalizers: an object stays until its clean-up has succeeded, and no longer.

A finalizer is set before a controller's first run, never on an object that is being deleted. It is taken off when the
clean-up has succeeded, when the object leaves the selector, and when no controller of this operator needs it any more
(an older version did). Writes are merge patches with the resourceVersion that was read: finalizers of others can't get
lost, and a lost race is a 409 that is tried again on a fresh copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncop.client import Client

TRIES = 5

DOMAIN = "asyncop.dev"


def finalizer_name(operator: str, controller: str) -> str:
    """The finalizer of one controller of an operator."""
    return f"{DOMAIN}/{operator}.{controller}"


@dataclass(frozen=True)
class Finalizers:
    """What one operator's controllers want of an object's finalizers."""

    operator: str
    wanted: frozenset[str]
    """Those of all its controllers that have a `finalize`."""

    def stale(self, finalizers: Iterable[str]) -> frozenset[str]:
        """Finalizers of this operator that nobody needs any more."""
        prefix = f"{DOMAIN}/{self.operator}."
        return frozenset(name for name in finalizers if name.startswith(prefix) and name not in self.wanted)


async def add_finalizer(client: Client, obj: Any, name: str) -> Any | None:
    """Set a finalizer; returns the object as it is then, or None if it is gone or being deleted meanwhile."""

    def with_it(metadata: Any) -> list[str] | None:
        return None if metadata.deletion_timestamp else [*metadata.finalizers, name]

    return await _rewrite(client, obj, lambda metadata: name in metadata.finalizers, with_it)


async def remove_finalizers(client: Client, obj: Any, names: frozenset[str]) -> Any | None:
    """Take finalizers off; returns the object as it is then, or None if it is gone."""

    def without_them(metadata: Any) -> list[str] | None:
        return [name for name in metadata.finalizers if name not in names]

    return await _rewrite(client, obj, lambda metadata: names.isdisjoint(metadata.finalizers), without_them)


async def _rewrite(
    client: Client, obj: Any, is_done: Callable[[Any], bool], rewritten: Callable[[Any], list[str] | None]
) -> Any | None:
    """Write finalizers until it is done; each lost race is followed by a fresh read."""
    uid = obj.metadata.uid
    for tries_left in reversed(range(TRIES)):
        metadata = obj.metadata
        if metadata.uid != uid:
            return None  # reborn under the name: another object
        if is_done(metadata):
            return obj
        finalizers = rewritten(metadata)
        if finalizers is None:
            return None
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata.resource_version}}
        try:
            return await client.patch(obj, patch)
        except NotFoundError:
            return None
        except ConflictError:
            if not tries_left:
                raise
        try:
            obj = await client.get(obj)
        except NotFoundError:
            return None
    return obj
