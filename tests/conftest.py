"""What every test may rely on: a clean environment, and a real control plane for those that ask for one.

A test that uses `control_plane` or `cluster` gets the marker of that name by itself, so `-m "not cluster"` always
means what it says. The time fixtures take does not count towards such a test's timeout: the first one would pay for
everybody.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import fresh_namespace, run_testbed

REAL_FIXTURES = {"control_plane": 20.0, "cluster": 180.0}
"""Fixture -> limit in seconds for the body of a test that uses it and names none itself."""

_LEAKY = ("ASYNCOP_", "KUBERNETES_SERVICE_")
_LEAKY_NAMES = {"KUBECONFIG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}


def pytest_configure() -> None:
    """Ctrl-C works wherever the tests run, and no event loop is made behind our back.

    Up to Python 3.13 a look for the current loop makes one, and nobody closes it.
    """
    asyncio.set_event_loop(None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job, whose children would be deaf too
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, limit in REAL_FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(fixture)
                own = item.get_closest_marker("timeout")
                seconds = own.args[0] if own and own.args else limit
                item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the developer's shell may change what a test sees; the test bed's own are exempt."""
    for name in list(os.environ):
        leaks = name.upper() in _LEAKY_NAMES or name.startswith(_LEAKY)
        if leaks and not name.startswith("ASYNCOP_TESTBED_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A real etcd and kube-apiserver without controllers or nodes, shared by the whole run. Keep to your namespace."""
    yield from run_testbed("plane", nodes=0)


@pytest.fixture
def kubeconfig(control_plane: Cluster) -> Path:
    """The administrator's kubeconfig of the control plane."""
    return control_plane.kubeconfig


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """The name of a fresh namespace of the control plane; it is left Terminating, for nobody there finishes that."""
    yield from fresh_namespace(control_plane)
