"""The chart's objects and rights, judged by a real API server: strict validation, Pod security, RBAC."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.conftest import CHART, ENABLED, Helm, flags
from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.processes import wait_until

DELETE = "controllers.stuckPods.mode=delete"
Review = dict[str, str]

PODS = {"resource": "pods"}
LEASES = {"resource": "leases", "group": "coordination.k8s.io"}
OWN_LEASE = {**LEASES, "name": "asyncop"}
EVENTS = {"resource": "events", "group": "events.k8s.io"}
WATCHING = ("get", "list", "watch")


@pytest.fixture
def install(control_plane: Cluster, namespace: str, helm: Helm, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Apply what the chart renders, strictly: an unknown or doubled field is an error."""
    manifest = tmp_path / "manifest.yaml"

    def apply(*sets: str) -> None:
        done = helm.run("template", "asyncop", CHART, "--namespace", namespace, *flags(sets, ()))
        manifest.write_text(done.stdout)
        control_plane.kubectl("apply", "--validate=strict", "-f", manifest)

    yield apply
    # The namespace goes by itself; the roles live outside of it.
    control_plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", manifest)


@pytest.fixture
def upgrade(control_plane: Cluster, namespace: str) -> Iterator[Callable[..., None]]:
    """Install or upgrade with helm itself, which adds what the server has filled in to what it sends."""

    def run(*sets: str) -> None:
        control_plane.run("helm", "upgrade", "--install", "asyncop", CHART, "-n", namespace, *flags(sets, ()))

    yield run
    control_plane.run("helm", "uninstall", "asyncop", "-n", namespace, "--ignore-not-found")


@pytest.fixture
def may(control_plane: Cluster, namespace: str) -> Callable[..., bool]:
    """Ask the server's authorizer about the chart's account."""

    def allowed(verb: str, resource: Review, where: str = "") -> bool:
        spec = {
            "user": f"system:serviceaccount:{namespace}:asyncop",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {"verb": verb, "namespace": where, **resource},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = control_plane.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    return allowed


def test_the_account_may_do_what_the_controller_does_and_no_more(
    install: Callable[..., None], may: Callable[..., bool], namespace: str
) -> None:
    install(ENABLED, DELETE)

    # The authorizer learns of a role a moment after it is stored.
    assert wait_until(lambda: may("get", LEASES, "kube-node-lease"), timeout=10)
    assert wait_until(lambda: may("delete", PODS), timeout=10)
    assert all(may(verb, PODS) and may(verb, {"resource": "nodes"}) for verb in WATCHING)
    assert may("create", EVENTS, "default")
    assert not may("list", LEASES, "kube-node-lease")
    assert not may("get", LEASES, "default")
    assert wait_until(lambda: may("patch", OWN_LEASE, namespace), timeout=10)
    assert all(may(verb, OWN_LEASE, namespace) for verb in ("get", "create"))
    assert not any(may(verb, OWN_LEASE, namespace) for verb in ("list", "watch", "update", "delete"))
    assert not any(may(verb, {**LEASES, "name": "other"}, namespace) for verb in ("get", "patch"))
    assert not may("deletecollection", PODS)
    assert not may("patch", PODS)
    assert not may("create", {"resource": "pods", "subresource": "eviction"}, "default")
    assert not may("delete", {"resource": "nodes"})
    assert not may("get", {"resource": "secrets"}, "default")


def test_report_mode_cannot_delete_even_if_it_wanted(install: Callable[..., None], may: Callable[..., bool]) -> None:
    install(ENABLED)

    assert wait_until(lambda: may("list", PODS), timeout=10)
    assert not may("delete", PODS)


def test_an_upgrade_to_delete_mode_and_back_moves_the_right_with_it(
    install: Callable[..., None], may: Callable[..., bool]
) -> None:
    install(ENABLED, DELETE)
    assert wait_until(lambda: may("delete", PODS), timeout=10)

    install(ENABLED)

    assert wait_until(lambda: not may("delete", PODS), timeout=10)


def test_an_upgrade_switches_election_off_and_on(
    control_plane: Cluster, namespace: str, upgrade: Callable[..., None]
) -> None:
    def strategy() -> str:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/asyncop"
        return str(control_plane.api.call("GET", path)["spec"]["strategy"]["type"])

    upgrade(ENABLED)
    assert strategy() == "RollingUpdate"

    upgrade(ENABLED, "leaderElection.enabled=false", "replicas=1")
    assert strategy() == "Recreate"

    upgrade(ENABLED)
    assert strategy() == "RollingUpdate"


def test_its_pod_is_admitted_under_the_restricted_profile(control_plane: Cluster, namespace: str, helm: Helm) -> None:
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.api.call("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": enforce}})
    (deployment,) = [obj for obj in helm.template(ENABLED) if obj["kind"] == "Deployment"]

    def admit(spec: dict[str, Any]) -> dict[str, Any]:
        pod = {"metadata": {"name": "asyncop"}, "spec": spec}
        return control_plane.api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    spec = deployment["spec"]["template"]["spec"]
    assert admit(spec)["metadata"]["name"] == "asyncop"

    loose = yaml.safe_load(yaml.safe_dump(spec))
    del loose["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(ApiError, match="violates PodSecurity"):
        admit(loose)
