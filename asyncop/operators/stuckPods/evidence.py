"""Proof of death: a node's Lease that does not move.

A Lease is dead only if its content stayed the same during a whole window of our own monotonic clock, as client-go's
leader election judges leases; nobody's wall clock is trusted. A look shows the Lease as it was at some time between
question and answer, so the window runs from the first answer to the last question. Leases are read for suspect nodes
only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import asyncop
from asyncop.operators.stuckPods.objects import LEASE_NAMESPACE, Lease
from asyncop.operators.stuckPods.rules import Reason, Refusal

REUSE = 1.0  # seconds that one read serves all Pods of a node; the look before a deletion is always a new one
MARGIN = 0.1  # seconds added to a wait, so that a look comes after the window and not on its edge


@dataclass(slots=True)
class _Seen:
    content: tuple[object, ...]
    since: float
    """When this content was first answered."""
    asked_at: float
    """When it was last asked for and still the same."""


class LeaseObserver:
    """What is known of the Leases of suspect nodes; one per process, never persisted."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._seen: dict[str, _Seen] = {}

    def forget(self, node: str) -> None:
        """The node has given a sign of life: whatever was seen before proves nothing."""
        self._seen.pop(node, None)

    async def refusal(self, node: str, ctx: asyncop.Context, *, anew: bool) -> Refusal | None:
        """Look at the Lease; None if it has not moved during the window that ends with the look.

        `anew`: ask the server also if it was asked a moment ago for another Pod of the node.

        A failed read proves nothing and keeps what was seen before: an unchanged Lease afterwards was unchanged all
        the time, since every renewal changes it for good.
        """
        seen = self._seen.get(node)
        asked = time.monotonic()  # not the event loop's clock: that one may lag behind what has just arrived
        if not anew and seen is not None and asked - seen.asked_at < REUSE:
            return self._unmoved(node, seen)
        try:
            lease = await ctx.client.get(Lease, node, namespace=LEASE_NAMESPACE)
        except asyncop.NotFoundError:
            self.forget(node)
            return Refusal(Reason.LEASE_MISSING, f"node {node} has no Lease to judge by", self._window)
        return self.judge(node, lease, asked=asked, answered=time.monotonic())

    def judge(self, node: str, lease: Lease, *, asked: float, answered: float) -> Refusal | None:
        """What a Lease read between two monotonic times says; None: it has not moved for the whole window."""
        content = (lease.metadata.uid, lease.spec.renew_time, lease.spec.holder_identity)
        seen = self._seen.get(node)
        if seen is not None and seen.content == content:
            seen.asked_at = max(seen.asked_at, asked)
            return self._unmoved(node, seen)
        fresh = self._seen[node] = _Seen(content, since=answered, asked_at=answered)
        if seen is None:
            return self._unmoved(node, fresh)
        return Refusal(Reason.LEASE_FRESH, f"the kubelet of {node} has renewed its Lease", self._window + MARGIN)

    def _unmoved(self, node: str, seen: _Seen) -> Refusal | None:
        left = self._window - (seen.asked_at - seen.since)
        if left <= 0:
            return None
        message = f"the Lease of {node} must not move for {self._window:g} s"
        return Refusal(Reason.LEASE_WATCHED, message, left + MARGIN)
