"""What every test may rely on: a clean environment, and a real control plane for those that ask for one.

A test that uses `control_plane` or `cluster` gets the marker of that name by itself, so `-m "not cluster"` always
means what it says. Where this machine cannot run such a test it is skipped with the reason; with `CI=true` that is a
failure, since a run that tested nothing must not look like one that did. The time fixtures take does not count
towards a test's timeout: the first test would pay for everybody.
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.testbed.cluster import Cluster, clear_ruins
from tests.testbed.errors import MissingToolError
from tests.testbed.processes import Identity
from tests.testbed.state import default_root

REAL_FIXTURES = {"control_plane": 20.0, "cluster": 180.0}
"""Fixture -> limit in seconds for the body of a test that uses it and names none itself."""

_LEAKY = ("ASYNCOP_", "KUBERNETES_SERVICE_")
_LEAKY_NAMES = {"KUBECONFIG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}


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


def start_testbed(kind: str, nodes: int) -> Iterator[Cluster]:
    """Run a test bed for this test run, after taking down what killed runs left; for use by session fixtures.

    The bed belongs to this process: if that is killed, the next run finds the remains by it.
    """
    root = default_root()
    clear_ruins(root)
    bed = Cluster(root / f"{kind}-{os.getpid()}")
    try:
        bed.up(nodes=nodes, owner=Identity.of(os.getpid()), audit=True)
    except MissingToolError as error:
        give_up(str(error))
    try:
        yield bed
    finally:
        bed.down()


def give_up(reason: str) -> None:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"must not be skipped in CI: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A real etcd and kube-apiserver without controllers or nodes, shared by the whole run. Keep to your namespace."""
    yield from start_testbed("plane", nodes=0)


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """The name of a fresh namespace of the control plane; it is left Terminating, for nobody there finishes that."""
    yield from fresh_namespace(control_plane)


def fresh_namespace(bed: Cluster) -> Iterator[str]:
    """Make one under a name that no test has used, and ask for its deletion in the end without waiting for it."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    bed.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    bed.api.call("DELETE", f"/api/v1/namespaces/{name}")
