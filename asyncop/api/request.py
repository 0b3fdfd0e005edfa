"""What a work queue holds and what a reconciler returns."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """Which object to reconcile: not what happened to it, and not the object itself.

    It is the key of stores and queues too. `namespace` is empty for cluster-scoped objects.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Result(NamedTuple):
    """When to run the key again, although nothing failed and nothing changed.

    It replaces the key's timer; a result without `requeue_after` clears it, as returning None does.
    """

    requeue_after: float | None = None
    """Seconds from now."""
