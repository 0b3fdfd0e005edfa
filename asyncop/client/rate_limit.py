"""The client's own limit on how many requests it sends, for servers without priority and fairness, or shared ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `qps` requests a second in the long run, and `burst` at once after a pause.

    Counts whatever is sent: tries again, and the opening of watches, too.
    """

    qps: float
    burst: int

    def __post_init__(self) -> None:
        if not self.qps > 0 or self.burst < 1:
            raise ValueError(f"a rate limit needs qps > 0 and burst >= 1; these are {self.qps:g} and {self.burst}")


class Gate:
    """Lets requests through in the order in which they came, no faster than the limit."""

    def __init__(self, limit: RateLimit) -> None:
        self._interval = 1 / limit.qps
        self._slack = (limit.burst - 1) * self._interval
        self._due = float("-inf")  # when the next would be sent if there were no bursts

    async def pass_through(self) -> None:
        """Wait for our turn. Whoever is cancelled while waiting gives the turn back."""
        now = asyncio.get_running_loop().time()
        turn = max(self._due, now)
        self._due = turn + self._interval
        if turn - self._slack <= now:
            return
        try:
            await asyncio.sleep(turn - self._slack - now)
        except asyncio.CancelledError:
            self._due -= self._interval
            raise
