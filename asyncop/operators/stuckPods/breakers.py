"""Breakers: when too much is wrong at once, deleting Pods by force is more likely to harm than to help."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import structlog

from asyncop import metrics
from asyncop.operators.stuckPods.rules import Reason, Refusal

if TYPE_CHECKING:
    from asyncop.operators.stuckPods.options import StuckPodsOptions

log = structlog.get_logger("asyncop.stuckPods")

MINUTE = 60.0
RECHECK = 10.0  # seconds until nodes are counted again; a node's change triggers too

_open = metrics.gauge("asyncop_stuck_pods_breaker_open", "1 while the breaker holds deletions back", ["breaker"])


class Breakers:
    """The freeze after the start, the share of unhealthy nodes, and the deletions a minute."""

    def __init__(self, options: StuckPodsOptions) -> None:
        self._options = options
        self._lead_since: float | None = None
        self._deletions: deque[float] = deque()
        self._state: dict[str, bool] = {}
        self._asked_until = float("-inf")  # whoever is held back now asks again before
        for breaker in ("startupFreeze", "maxUnhealthyNodes", "maxDeletionsPerMinute"):
            self._set(breaker, is_open=False, why="")

    def lead_began(self, now: float) -> None:
        """We have started, or have won the lead: the freeze begins."""
        self._lead_since = now

    def is_open(self, breaker: str) -> bool:
        """Whether the breaker held something back when it was asked last."""
        return self._state[breaker]

    def close_unasked(self, now: float) -> None:
        """Close those that hold nobody back any more: the Pods have gone by other ways, and nobody asks again."""
        if now > self._asked_until + RECHECK:
            self.close()

    def close(self) -> None:
        """Nothing is held back, since nothing is to be deleted."""
        for breaker in self._state:
            self._set(breaker, is_open=False, why="")

    def refusal(self, now: float, unhealthy: int, nodes: int) -> Refusal | None:
        """Why nothing may be deleted now, if a breaker is open."""
        found = self._refusal(now, unhealthy, nodes)
        if found is not None:
            self._asked_until = max(self._asked_until, now + (found.again or 0.0))
        return found

    def _refusal(self, now: float, unhealthy: int, nodes: int) -> Refusal | None:
        frozen = self._frozen(now)
        self._set("startupFreeze", is_open=frozen is not None, why=f"{frozen or 0:.0f} s left")
        limit = self._options.unhealthy_limit(nodes)
        is_sick = unhealthy > limit
        why = f"{unhealthy} of {nodes} nodes are not Ready; at most {self._options.max_unhealthy_nodes} may be"
        self._set("maxUnhealthyNodes", is_open=is_sick, why=why)
        full = self._full(now)
        self._set("maxDeletionsPerMinute", is_open=full is not None, why=f"{len(self._deletions)} in the last minute")
        if frozen is not None:
            message = f"startupFreeze: nothing is deleted in the first {self._options.startup_freeze:g} s"
            return Refusal(Reason.BREAKER_OPEN, message, frozen)
        if is_sick:
            return Refusal(Reason.BREAKER_OPEN, f"maxUnhealthyNodes: {why}", RECHECK)
        if full is not None:
            limit_text = f"maxDeletionsPerMinute: {self._options.max_deletions_per_minute} were deleted in a minute"
            return Refusal(Reason.BREAKER_OPEN, limit_text, full)
        return None

    def take(self, now: float) -> bool:
        """Count a deletion that is about to be sent; False if the minute's budget is used up."""
        if self._full(now) is not None:
            return False
        self._deletions.append(now)
        return True

    def give_back(self) -> None:
        """The last counted deletion has not happened."""
        if self._deletions:
            self._deletions.pop()

    def _frozen(self, now: float) -> float | None:
        if not self._options.startup_freeze:
            return None
        if self._lead_since is None:
            return float(self._options.startup_freeze)
        left = self._options.startup_freeze - (now - self._lead_since)
        return left if left > 0 else None

    def _full(self, now: float) -> float | None:
        while self._deletions and now - self._deletions[0] >= MINUTE:
            self._deletions.popleft()
        if len(self._deletions) < self._options.max_deletions_per_minute:
            return None
        return self._deletions[0] + MINUTE - now

    def _set(self, breaker: str, *, is_open: bool, why: str) -> None:
        if self._state.get(breaker) is is_open:
            return
        if is_open:
            log.warning("Breaker opened", breaker=breaker, why=why)
        elif breaker in self._state:
            log.info("Breaker closed", breaker=breaker)
        self._state[breaker] = is_open
        _open.labels(breaker).set(is_open)
