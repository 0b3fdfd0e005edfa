"""The rules of what is tried again, without a server."""

from __future__ import annotations

import pytest

from asyncop.api.errors import AsyncopError, TransportError, api_error
from asyncop.client.retry import READ_TRIES, REJECTED_TRIES, UNREACHED_TRIES, Retries, UnreachedError, UntrustedError


def tries(method: str, error: AsyncopError) -> int:
    """How often the call is made again when it goes on failing like that."""
    retries, count = Retries(method), 0
    while retries.delay_after(error) is not None:
        count += 1
    return count


@pytest.mark.parametrize(
    ("error", "reads", "writes"),
    [
        (api_error(429), REJECTED_TRIES, REJECTED_TRIES),
        (api_error(429, causes=("DisruptionBudget",)), 0, 0),
        (UnreachedError("refused"), UNREACHED_TRIES, UNREACHED_TRIES),
        (UntrustedError("certificate"), 0, 0),
        (TransportError("reset"), READ_TRIES, 0),
        (api_error(500), READ_TRIES, 0),
        (api_error(503), READ_TRIES, 0),
        (api_error(501), 0, 0),
        (api_error(404), 0, 0),
        (api_error(409), 0, 0),
        (api_error(410), 0, 0),
    ],
)
def test_what_is_tried_again_is_as_the_table_says(error: AsyncopError, reads: int, writes: int) -> None:
    assert tries("GET", error) == reads
    assert {tries(method, error) for method in ("POST", "PUT", "PATCH", "DELETE")} == {writes}


def test_delays_grow_and_are_never_shorter_than_the_server_asks() -> None:
    retries = Retries("GET")
    delays = [retries.delay_after(api_error(429, retry_after=0.5)) for _ in range(REJECTED_TRIES)]
    assert all(delay is not None and delay >= 0.5 for delay in delays)
    plain = Retries("GET")
    first, second = plain.delay_after(api_error(503)), plain.delay_after(api_error(503))
    assert first is not None
    assert second is not None
    assert 0.1 <= first <= 0.2 <= second <= 0.4
