"""Exit codes, and the end of a process that can't end in order."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import NoReturn

import structlog

log = structlog.get_logger("asyncop.manager")

EXIT_CLEAN = 0
EXIT_CRASH = 1
EXIT_UNREACHABLE = 4
EXIT_LEAD_LOST = 5


def end_at_once(code: int) -> NoReturn:
    """End the process without waiting for anything but its output, if there is anybody to take that."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # full, closed, or never there
            stream.flush()
    os._exit(code)


def end_anyway(seconds: float, code: int) -> None:
    """End the process in `seconds`, if it has not ended by then: for when nothing is left to do but to end.

    Python waits without a limit for tasks that swallow their cancellation and for threads, also those that run what a
    reconciler has given to `asyncio.to_thread`.
    """
    timer = threading.Timer(seconds, _end_anyway, (code,))
    timer.daemon = True
    timer.start()


def _end_anyway(code: int) -> None:
    is_waited_for = [thread.name for thread in threading.enumerate() if not thread.daemon]
    log.warning("Something has not ended, so the process ends without it", threads=is_waited_for)
    end_at_once(code)
