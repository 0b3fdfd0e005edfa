"""Every error that asyncop raises, as one tree.

AsyncopError
├── ApiError(status, reason, message, retry_after)    the API server answered with a failure
│   ├── UnauthorizedError      401  the client re-reads credentials once; then the caller's backoff
│   ├── ForbiddenError         403  the caller; a watch retries slowly and names the missing right
│   ├── NotFoundError          404  the caller; success for a delete
│   ├── ConflictError          409  the caller: read again, decide again
│   │   └── AlreadyExistsError 409  the caller of create
│   ├── GoneError              410  the reflector: relist
│   ├── InvalidError           400, 422  the caller: the request is wrong, repeating it is useless
│   ├── TooManyRequestsError   429  the client waits `retry_after` and tries again, up to its limit
│   └── ServerError            5xx  the client retries reads; then the caller's backoff
├── TransportError             no answer: refused, reset, timed out, TLS; writes may have happened
├── DecodeError                one object doesn't fit its type; skip it, never the kind
├── TemporaryError             raised by users: try again after `delay`
├── PermanentError             raised by users: not again until something new triggers it
├── LeaseLostError             the lead may be lost: what was about to be written must not be; let it pass
└── ConfigError                a file, flag or option is wrong; the message says what to do
"""

from __future__ import annotations


class AsyncopError(Exception):
    """Root of all errors of this package."""


class ApiError(AsyncopError):
    """The API server answered, and the answer is a failure (a `Status` object)."""

    status: int
    """HTTP status code."""
    reason: str
    """Machine-readable reason of the Status, e.g. `NotFound`; empty if the server gave none."""
    message: str
    """What the server says, for people."""
    retry_after: float | None
    """Seconds the server asks to wait before another try, if it does."""
    causes: tuple[str, ...]
    """Reasons of the Status' causes, e.g. `ResourceVersionTooLarge`."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after: float | None = None,
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message = status, reason, message
        self.retry_after, self.causes = retry_after, causes

    def __str__(self) -> str:
        return f"{self.message or 'no message'} ({self.status}{' ' + self.reason if self.reason else ''})"


class UnauthorizedError(ApiError):
    """401. The client has already re-read its credentials and tried once more."""


class ForbiddenError(ApiError):
    """403. The caller lacks a right, or the namespace is being deleted; the message names it."""


class NotFoundError(ApiError):
    """404. The object, or its whole kind, isn't there."""


class ConflictError(ApiError):
    """409. A precondition or resourceVersion no longer holds: read again and decide again."""


class AlreadyExistsError(ConflictError):
    """409 on create. An object of this name exists, perhaps not ours."""


class GoneError(ApiError):
    """410. A resourceVersion or continue token has expired; the reflector lists anew."""


class InvalidError(ApiError):
    """400 or 422. The request is wrong; repeating it gives the same answer."""


class TooManyRequestsError(ApiError):
    """429. The client has waited and retried up to its limit; back off."""


class ServerError(ApiError):
    """5xx. The server, or something in front of it, failed."""


class TransportError(AsyncopError):
    """No answer came: refused, reset, timed out, or TLS failed. A write may or may not have happened."""


class DecodeError(AsyncopError):
    """One object doesn't fit its declared type. The kind goes on; the object is skipped and reported."""


class TemporaryError(AsyncopError):
    """Raised by a reconciler: run this key again after `delay` seconds, whatever its failure count."""

    def __init__(self, message: str = "", delay: float = 60.0) -> None:
        super().__init__(message)
        self.delay = delay


class PermanentError(AsyncopError):
    """Raised by a reconciler: don't run this key again until something new triggers it; resync doesn't count."""


class LeaseLostError(AsyncopError):
    """The lead may be lost: a write was refused before it was sent. The manager handles it; never catch it."""


class ConfigError(AsyncopError):
    """A file, flag, option or context is wrong. The message names it and what to do; the CLI prints it as one line."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def api_error(
    status: int,
    reason: str = "",
    message: str = "",
    retry_after: float | None = None,
    causes: tuple[str, ...] = (),
) -> ApiError:
    """The error of the tree that fits an HTTP status and a Status' reason."""
    if reason == "AlreadyExists":
        cls: type[ApiError] = AlreadyExistsError
    elif reason == "Expired":
        cls = GoneError
    else:
        cls = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return cls(status, reason, message, retry_after, causes)
