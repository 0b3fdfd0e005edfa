"""What the conftest files make their fixtures from; the only module here that needs pytest.

Where this machine cannot run a test bed, its tests are skipped with the reason. With `CI=true` that is a failure: a
run that tested nothing must not look like one that did.
"""

import os
import uuid
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.testbed.cluster import Cluster, clear_ruins
from tests.testbed.errors import MissingToolError
from tests.testbed.processes import Identity
from tests.testbed.state import default_root


def run_testbed(kind: str, nodes: int) -> Iterator[Cluster]:
    """Yield a test bed of this test run's own, after taking down what killed runs left; take it down afterwards.

    It belongs to this process: if that is killed, the next run knows the remains by it.
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


def give_up(reason: str) -> NoReturn:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"must not be skipped in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def fresh_namespace(bed: Cluster) -> Iterator[str]:
    """Make a namespace under a name no test has used; ask for its deletion in the end without waiting for it."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    bed.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    bed.api.call("DELETE", f"/api/v1/namespaces/{name}")
