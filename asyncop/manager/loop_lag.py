"""How late the event loop runs what is due: the metric, and the reason for which liveness fails.

The health server lives on the same loop, so a loop that is blocked now answers no probe at all. What is left to tell is
a loop that has been blocked and answers again: its worst lag counts for `MEMORY` seconds, longer than the time between
two probes, so that one of them sees it.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from asyncop.metrics.process import event_loop_lag

log = structlog.get_logger("asyncop.manager")

PERIOD = 1.0
WARN_ABOVE = 1.0
MEMORY = 15.0
LIMIT = 10.0


class LoopLag:
    """Measures once a second while `run` runs.

    Args:
        limit: seconds of lag from which on the process counts as stuck.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._due: float | None = None
        self._worst = 0.0
        self._worst_at = float("-inf")

    async def run(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                # Not the loop's own clock: uvloop's stands still while the loop is blocked.
                self._due = time.monotonic() + PERIOD
                await asyncio.sleep(PERIOD)
                now = time.monotonic()
                self._record(now, max(0.0, now - self._due))
        finally:
            self._due = None

    def problem(self) -> str | None:
        """Why the loop counts as stuck, if it does. Never before `run` has started."""
        if self._due is None:
            return None
        now = time.monotonic()
        lag = max(self._remembered(now), now - self._due)
        return f"the event loop was blocked for {lag:.1f} s" if lag > self._limit else None

    def _record(self, now: float, lag: float) -> None:
        event_loop_lag.observe(lag)
        if lag > WARN_ABOVE:
            log.warning("Event loop was blocked", seconds=round(lag, 3))
        if lag >= self._remembered(now):
            self._worst, self._worst_at = lag, now

    def _remembered(self, now: float) -> float:
        return self._worst if now - self._worst_at < MEMORY else 0.0
