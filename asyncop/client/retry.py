"""Which failures of a call are worth another try, and when.

| failure                                         | reads                   | writes                  |
|-------------------------------------------------|-------------------------|-------------------------|
| 429                                             | after Retry-After, 4x   | after Retry-After, 4x   |
| 429 since a disruption budget refuses           | -                       | no: not soon over       |
| no connection (refused, unreachable, DNS)       | 4x                      | 4x: nothing was sent    |
| TLS: certificate, name, protocol; unsendable    | no: won't change        | no                      |
| connection broke, answer cut short              | 3x                      | no                      |
| 500, 502, 503, 504                              | 3x                      | no                      |
| anything else                                   | no                      | no                      |

Retry-After is what the header says, else `details.retryAfterSeconds`; the backoff with its jitter comes on top, so that
those who were refused together don't come back together. A call waits for no more than `PATIENCE` seconds in all: it
may hold one of a controller's few workers. After that the error goes to the caller, with what the server asked for.

A write that may have been sent is never sent again, with or without preconditions: if the first one was carried out,
the second would answer 404 or 409, and its caller would take its own success for somebody else's doing. Reconcilers
run again anyway, from what the server then says. Who knows that doing it twice is as good as once says `repeatable`:
then a write is retried like a read.
"""

from __future__ import annotations

from asyncop.aio.backoff import BackoffPolicy
from asyncop.api.errors import ApiError, AsyncopError, TooManyRequestsError, TransportError

BACKOFF = BackoffPolicy(initial=0.1, maximum=2.0, jitter=1.0)
REJECTED_TRIES = 4
PATIENCE = 5.0  # seconds; enough for some tries at the 1 s that an API server asks for
UNREACHED_TRIES = 4
READ_TRIES = 3
_READS = frozenset({"GET", "HEAD"})
_PASSING = frozenset({500, 502, 503, 504})


class UnreachedError(TransportError):
    """No connection came about: the server has seen nothing of the request."""


class UntrustedError(TransportError):
    """TLS failed, or the request can't be sent as it is: trying again would fail alike."""


class Retries:
    """The tries of one call so far."""

    def __init__(self, method: str, *, repeatable: bool = False) -> None:
        self._is_repeatable = repeatable or method in _READS
        self._failures = 0
        self._waited = 0.0

    def delay_after(self, error: AsyncopError) -> float | None:
        """Seconds until the next try; None if there should be none."""
        self._failures += 1
        if self._failures > self._limit(error):
            return None
        delay = BACKOFF.delay(self._failures - 1) + (getattr(error, "retry_after", None) or 0.0)
        self._waited += delay
        return delay if self._waited <= PATIENCE else None

    def _limit(self, error: AsyncopError) -> int:
        if isinstance(error, TooManyRequestsError):
            return 0 if "DisruptionBudget" in error.causes else REJECTED_TRIES
        if isinstance(error, UnreachedError):
            return UNREACHED_TRIES
        if not self._is_repeatable or isinstance(error, UntrustedError):
            return 0
        passes = isinstance(error, TransportError) or (isinstance(error, ApiError) and error.status in _PASSING)
        return READ_TRIES if passes else 0
