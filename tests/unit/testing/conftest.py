"""An embedded server for a test, and somebody to talk to it who isn't asyncop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

from asyncop.testing import ApiServer
from tests.contract.apiserver.servers import embedded_endpoint
from tests.contract.apiserver.transcript import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.05, loop_factory=request.param) as server:
        yield server


@pytest.fixture
def c(server: ApiServer) -> Iterator[Caller]:
    caller = Caller(embedded_endpoint(server), "default")
    yield caller
    caller.close()
