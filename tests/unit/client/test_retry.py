"""The rules of what is tried again, without a server."""

from __future__ import annotations

import pytest

from asyncop.api.errors import AsyncopError, TransportError, api_error
from asyncop.client.retry import READ_TRIES, REJECTED_TRIES, UNREACHED_TRIES, Retries, UnreachedError, UntrustedError


def tries(method: str, error: AsyncopError, *, repeatable: bool = False) -> int:
    """How often the call is made again when it goes on failing like that."""
    retries, count = Retries(method, repeatable=repeatable), 0
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


def test_a_repeatable_write_is_tried_again_like_a_read() -> None:
    assert tries("POST", TransportError("reset"), repeatable=True) == READ_TRIES
    assert tries("POST", api_error(503), repeatable=True) == READ_TRIES


def test_delays_grow() -> None:
    retries = Retries("GET")
    first, second = retries.delay_after(api_error(503)), retries.delay_after(api_error(503))
    assert first is not None
    assert second is not None
    assert 0.1 <= first <= 0.2 <= second <= 0.4


def test_delays_are_longer_than_the_server_asks_by_a_jitter() -> None:
    delays = {Retries("GET").delay_after(api_error(429, retry_after=2)) for _ in range(100)}
    assert all(delay is not None and 2.1 <= delay <= 2.2 for delay in delays)
    assert len(delays) > 50


@pytest.mark.parametrize(("asked", "count"), [(0.1, 4), (1, 3), (2, 2), (5, 0), (60, 0)])
def test_patience_ends_after_five_seconds_of_waiting(asked: float, count: int) -> None:
    assert tries("PATCH", api_error(429, retry_after=asked)) == count
