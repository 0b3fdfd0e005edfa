"""One run of one key: call the user's function, time it, and say how it ended.

This is the one place where any exception of a user's function is caught. Cancellation is not an outcome: it passes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import LeaseLostError, PermanentError, TemporaryError
from asyncop.api.request import Result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncop.controller.context import Context


@dataclass(frozen=True, slots=True)
class Succeeded:
    """It returned; `requeue_after` is None unless it asked for another run."""

    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised, or took longer than its timeout: backoff."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class FailedTemporarily:
    """It raised TemporaryError: again after the delay it asked for."""

    error: TemporaryError


@dataclass(frozen=True, slots=True)
class FailedPermanently:
    """It raised PermanentError: not before something new triggers it."""

    error: PermanentError


@dataclass(frozen=True, slots=True)
class LeadLost:
    """A write was refused since the lead may be lost. All work is about to be cancelled; nobody is to blame."""


Outcome = Succeeded | Failed | FailedTemporarily | FailedPermanently | LeadLost

_DONE = Succeeded()


async def reconcile(
    function: Callable[[Any, Context], Awaitable[Any]], timeout: float, obj: Any, ctx: Context
) -> Outcome:
    """Run a user's function once, within its timeout (seconds)."""
    try:
        async with asyncio.timeout(timeout):
            result = await function(obj, ctx)
    except TemporaryError as error:
        return FailedTemporarily(error)
    except PermanentError as error:
        return FailedPermanently(error)
    except LeaseLostError:
        return LeadLost()
    except Exception as error:
        return Failed(error)
    return _DONE if result is None else _succeeded(result)


def _succeeded(result: Any) -> Outcome:
    if not isinstance(result, Result):
        return Failed(TypeError(f"a reconciler returns None or asyncop.Result, not {type(result).__name__}"))
    return Succeeded(result.requeue_after)
