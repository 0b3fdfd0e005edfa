"""SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once. SIGUSR1: a report."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING

import structlog

from asyncop.manager.exit import end_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = structlog.get_logger("asyncop.manager")

ECHO = 0.2  # seconds; a wrapper that signals both the process and its group means it once


class StopSignal:
    """Set by the first signal or by a call."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._received_at: float | None = None

    def set(self) -> None:
        """Ask for the end."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until the end has been asked for."""
        await self._event.wait()

    @contextlib.contextmanager
    def on_signals(self, report: Callable[[], None]) -> Iterator[None]:
        """Listen inside the block, `report` on SIGUSR1; where the loop can't (outside of the main thread), don't."""
        loop = asyncio.get_running_loop()
        heard: list[signal.Signals] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                if number is signal.SIGUSR1:
                    loop.add_signal_handler(number, report)
                else:
                    loop.add_signal_handler(number, self._receive, number)
                heard.append(number)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def _receive(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if self._received_at is None:
            self._received_at = now
            log.info("Received signal", signal=number.name)
            self.set()
            return
        if now - self._received_at < ECHO:
            return
        log.warning("Received a second signal: ending at once", signal=number.name)
        end_at_once(128 + number)
