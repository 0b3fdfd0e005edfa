"""Waiting for the API server at start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from asyncop.aio.backoff import Backoff, BackoffPolicy
from asyncop.api.errors import ApiError, AsyncopError, DecodeError, TransportError

if TYPE_CHECKING:
    from asyncop.client import Client

log = structlog.get_logger("asyncop.manager")

PROBE_TIMEOUT = 5.0
REFUSALS = frozenset({403, 429})
RETRY = BackoffPolicy(initial=1.0, maximum=10.0, jitter=0.2)

_version = msgspec.json.Decoder(dict[str, object])


class ApiUnreachableError(AsyncopError):
    """The API server didn't answer within the start timeout; exit code 4."""


async def reach(client: Client, timeout: float) -> None:
    """Return once the API server answers; an answer that refuses us is an answer, unless it refuses who we are.

    A login page, a redirect or a 404 is none: that is somebody else, at a wrong address or in front of the server.

    Raises:
        ApiUnreachableError: it did not within `timeout` seconds; the message says what the last try met.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    backoff = Backoff(RETRY, reset_after=float("inf"))
    while (problem := await _ask(client)) is not None:
        delay = backoff.next(loop.time())
        if loop.time() + delay > deadline:
            raise ApiUnreachableError(f"the API server did not answer within {timeout:g} s: {problem}")
        log.warning("Waiting for the API server", err=str(problem), retry_in=round(delay, 1))
        await asyncio.sleep(delay)


async def _ask(client: Client) -> AsyncopError | None:
    """What keeps the server from being of use, if something does."""
    try:
        answer = await client.raw("GET", "/version", timeout=PROBE_TIMEOUT)
        _version.decode(answer)
    except ApiError as error:
        return None if error.status in REFUSALS else error
    except TransportError as error:
        return error
    except msgspec.DecodeError:
        return DecodeError(f"{client.transport.host} answers, but not as an API server does")
    return None
