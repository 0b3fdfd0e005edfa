"""Calls to the API server, by client-go's names; the client counts them."""

from __future__ import annotations

from asyncop.metrics.series import Distributions, Values

# component-base's buckets
_BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

_requests = Values(
    "counter",
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)
_duration = Distributions(
    "rest_client_request_duration_seconds",
    "Request latency in seconds. Broken down by verb, and host.",
    ("verb", "host"),
    bounds=_BOUNDS,
)


def observe(method: str, host: str, code: str, seconds: float) -> None:
    """Count one request: `code` is the HTTP status, or a word where no answer came (client-go says `<error>`)."""
    _requests.labels(code, method, host).inc()
    _duration.labels(method, host).observe(seconds)
