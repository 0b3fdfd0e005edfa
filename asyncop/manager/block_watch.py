"""A blocked event loop is logged with the stack that blocks it, while it blocks.

The loop can't report itself then, so a thread looks at its heartbeat. One report for each time that it is blocked.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = structlog.get_logger("asyncop.manager")

BEAT = 0.5
LIMIT = 2.0  # seconds; shorter pauses are lag, which is measured
FRAMES = 12  # the innermost, where the reason is


@asynccontextmanager
async def watch_for_blocks(limit: float = LIMIT) -> AsyncIterator[None]:
    """Watch the running loop's thread inside the block; `limit` in seconds."""
    watch = _BlockWatch(threading.get_ident(), limit)
    thread = threading.Thread(target=watch.run, name="asyncop block watch", daemon=True)
    thread.start()
    beating = asyncio.create_task(watch.beat(), name="heartbeat")
    try:
        yield
    finally:
        beating.cancel()
        watch.ended.set()


class _BlockWatch:
    def __init__(self, watched: int, limit: float) -> None:
        self._watched, self._limit = watched, limit
        self._beat_at = time.monotonic()
        self.ended = threading.Event()

    async def beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT)

    def run(self) -> None:
        """The thread: a look each beat, a report for each beat that is missed for long."""
        reported = 0.0
        while not self.ended.wait(BEAT):
            beat_at = self._beat_at
            blocked = time.monotonic() - beat_at - BEAT
            if blocked > self._limit and beat_at != reported:
                reported = beat_at
                self._report(blocked)

    def _report(self, blocked: float) -> None:
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)[-FRAMES:]) if frame else ""
        log.error("Event loop is blocked; move such work to a thread", seconds=round(blocked, 1), stack=stack)
