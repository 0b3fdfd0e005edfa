"""The servers under comparison: one real for the whole run, one embedded on each kind of loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from asyncop.testing import ApiServer
from tests.contract.apiserver.cases.all import CASES
from tests.contract.apiserver.servers import embedded_endpoint, real_endpoint, talk

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Endpoint
    from tests.testbed.cluster import Cluster

Told = Callable[[str], list[Any]]


@pytest.fixture(scope="session", params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def embedded(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """The embedded server, as bare as the control plane it is compared with."""
    with ApiServer(controllers=False, loop_factory=request.param) as server:
        yield embedded_endpoint(server)


@pytest.fixture(scope="session")
def real(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the real server answers in a case; it is asked once."""
    endpoint = real_endpoint(control_plane, tmp_path_factory.mktemp("real"))
    known: dict[str, list[Any]] = {}

    def told(name: str) -> list[Any]:
        if name not in known:
            known[name] = talk(endpoint, CASES[name])
        return known[name]

    return told
