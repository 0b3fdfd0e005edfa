"""The control plane that the contract tests stand on is a real one."""

import pytest

from tests.testbed.api import ApiError
from tests.testbed.binaries import KUBERNETES
from tests.testbed.cluster import Cluster


def test_real_api_server_answers_with_the_pinned_version(control_plane: Cluster) -> None:
    assert control_plane.api.call("GET", "/version")["gitVersion"] == KUBERNETES


def test_stale_resource_version_is_refused_with_a_conflict(control_plane: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    stale = control_plane.api.call("POST", path, {"metadata": {"name": "one"}})
    control_plane.api.call("PUT", f"{path}/one", {**stale, "data": {"changed": "yes"}})

    with pytest.raises(ApiError) as refused:
        control_plane.api.call("PUT", f"{path}/one", {**stale, "data": {"changed": "again"}})

    assert refused.value.status == 409


def test_kubectl_reaches_it_with_the_kubeconfig(control_plane: Cluster, namespace: str) -> None:
    assert control_plane.kubectl("get", "namespace", namespace, "-o", "name") == f"namespace/{namespace}\n"


def test_every_request_is_in_the_audit_log(control_plane: Cluster, namespace: str) -> None:
    control_plane.api.call("GET", f"/api/v1/namespaces/{namespace}/secrets")

    assert f"/api/v1/namespaces/{namespace}/secrets" in control_plane.audit_log.read_text()
