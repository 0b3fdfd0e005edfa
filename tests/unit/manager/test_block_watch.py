"""A loop that is blocked is told while it is, with the stack that blocks it."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from asyncop.manager.block_watch import watch_for_blocks

pytestmark = pytest.mark.asyncio


def held_up() -> None:
    time.sleep(1.6)


async def test_the_stack_that_blocks_the_loop_is_logged_once() -> None:
    with capture_logs() as logs:
        async with watch_for_blocks(limit=0.3):
            await asyncio.sleep(0)
            held_up()
    [told] = [line for line in logs if line["log_level"] == "error"]
    assert "held_up" in told["stack"]
    assert told["seconds"] > 0.3


async def test_a_loop_that_runs_is_not_told_of() -> None:
    with capture_logs() as logs:
        async with watch_for_blocks(limit=0.3):
            for _ in range(20):
                await asyncio.sleep(0.05)
    assert logs == []
