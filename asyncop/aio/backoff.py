"""Delays that grow with failures, spread by jitter so that many clients don't come back at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """How delays grow: `initial * factor ** failures`, at most `maximum`, then up to `jitter` times longer."""

    initial: float
    maximum: float
    factor: float = 2.0
    jitter: float = 0.0
    """0.5 spreads a delay of 10 s over 10 to 15 s."""

    def delay(self, failures: int) -> float:
        """Seconds to wait after the `failures`-th failure in a row, counted from 0."""
        exponent = min(failures, 64)  # beyond that the maximum rules anyway, and floats would overflow
        base = min(self.initial * self.factor**exponent, self.maximum)
        return base * (1 + self.jitter * random.random())


@dataclass(slots=True)
class Backoff:
    """The running count of one loop that retries for ever, e.g. a reflector's.

    Call `next()` after a failure with the loop's time; it forgets earlier failures once `reset_after` seconds have
    passed without one.
    """

    policy: BackoffPolicy
    reset_after: float
    _failures: int = field(default=0, init=False)
    _last: float = field(default=float("-inf"), init=False)

    @property
    def failures(self) -> int:
        """Failures in a row so far."""
        return self._failures

    def next(self, now: float) -> float:
        """Seconds to wait after the failure that just happened."""
        if now - self._last > self.reset_after:
            self._failures = 0
        self._last = now
        delay = self.policy.delay(self._failures)
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Forget all failures."""
        self._failures = 0
