"""The client's own rate limit, by a virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from asyncop.client import RateLimit, Transport
from asyncop.client.rate_limit import Gate
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Server, ok, status

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def passed(gate: Gate, passages: list[float]) -> None:
    await gate.pass_through()
    passages.append(round(asyncio.get_running_loop().time(), 6))


async def test_a_burst_passes_at_once_and_the_rest_at_the_rate_in_order() -> None:
    gate, passages, start = Gate(RateLimit(qps=10, burst=3)), [], asyncio.get_running_loop().time()
    await asyncio.gather(*(passed(gate, passages) for _ in range(6)))
    assert [round(at - start, 6) for at in passages] == [0, 0, 0, 0.1, 0.2, 0.3]
    await asyncio.sleep(0.25)
    passages.clear()
    start = asyncio.get_running_loop().time()
    await asyncio.gather(*(passed(gate, passages) for _ in range(3)))
    assert [round(at - start, 6) for at in passages] == [0, 0, 0.05]


async def test_who_is_cancelled_gives_the_turn_back() -> None:
    gate, passages, start = Gate(RateLimit(qps=1, burst=1)), [], asyncio.get_running_loop().time()
    await passed(gate, passages)
    waiting = [asyncio.create_task(passed(gate, passages)) for _ in range(50)]
    await asyncio.sleep(0.5)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await passed(gate, passages)
    assert [round(at - start, 6) for at in passages] == [0, 1]


async def test_tries_again_and_streams_count_too(server: Server) -> None:
    server.then(status(429), ok(b"x"), ok(b"y"), ok(b"z"))
    transport = Transport(connection_to(server.url), user_agent="t", rate_limit=RateLimit(qps=0.1, burst=1))
    start = asyncio.get_running_loop().time()
    assert await transport.request("GET", "/x") == b"x"
    assert asyncio.get_running_loop().time() - start == pytest.approx(10, abs=0.1)
    async with transport.stream("/x", timeout=60) as stream:
        assert await stream.chunk() == b"y"
    assert asyncio.get_running_loop().time() - start == pytest.approx(20, abs=0.1)
    await transport.aclose()


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
async def test_a_limit_that_lets_nothing_through_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="needs qps > 0 and burst >= 1"):
        RateLimit(qps=qps, burst=burst)
