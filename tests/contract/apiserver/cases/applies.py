"""Server-side apply: who owns what, conflicts, force, what goes when nobody applies it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.apiserver.cases import case, config_map, deployment

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller


@case
def an_apply_creates_and_owns(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.apply(path, config_map(data={"x": "1", "y": "2"}, labels={"a": "1"}))
    c.apply(path, config_map(data={"x": "1", "y": "2"}, labels={"a": "1"}))
    c.apply(path, config_map(data={"x": "2"}))
    c.apply(path, config_map())
    c.patch(path, {"data": {"u": "1"}}, fieldManager="updater")
    c.apply(path, config_map(data={"u": "2"}))
    c.apply(path, config_map(data={"u": "2"}), force="true")
    c.apply(path, config_map(data={"dry": "1"}), dryRun="All")


@case
def two_appliers_share_an_object(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.apply(path, config_map(data={"x": "1", "y": "1", "z": "1"}), "one")
    c.apply(path, config_map(data={"x": "1"}), "two")
    c.apply(path, config_map(data={"x": "2", "y": "2"}), "two")
    c.apply(path, config_map(data={"x": "2"}), "two", force="true")
    c.apply(path, config_map(data={"z": "1"}), "one")
    c.apply(path, config_map(), "two")


@case
def an_apply_must_be_complete(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.patch(path, config_map(), "application/apply-patch+yaml")
    c.apply(path, config_map("b"))
    c.apply(path, config_map(managedFields=[{"manager": "x", "operation": "Apply"}]))
    c.apply(path, config_map(uid="5d4c8d1c-0000-4000-8000-000000000000"))
    c.apply(
        c.api("apps/v1", "deployments", "a", "status"), {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}
    )


@case
def lists_are_shared_by_their_keys(c: Caller) -> None:
    path = c.api("apps/v1", "deployments", "a")

    def configured(*containers: dict[str, Any]) -> dict[str, Any]:
        obj = deployment()
        obj["spec"]["template"]["spec"]["containers"] = list(containers)
        return obj

    main = {
        "name": "c",
        "image": "nowhere.invalid/c",
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}],
    }
    c.apply(path, configured(main), "one")
    c.apply(path, configured({"name": "side", "image": "nowhere.invalid/s"}), "two")
    c.apply(path, configured({"name": "c", "env": [{"name": "B", "value": "2"}]}), "three")
    c.apply(path, configured({"name": "c", "env": [{"name": "A", "value": "3"}]}), "three")
    c.apply(path, configured({**main, "env": [], "ports": [{"containerPort": 81}]}), "one")
    c.apply(
        path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"finalizers": ["example.com/a"]}}, "four"
    )
    c.apply(
        path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"finalizers": ["example.com/b"]}}, "five"
    )
    c.apply(path, {"apiVersion": "apps/v1", "kind": "Deployment"}, "four")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "5d4c8d1c-0000-4000-8000-000000000000"}
    c.apply(path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"ownerReferences": [owner]}}, "six")


@case
def a_status_is_applied_apart(c: Caller) -> None:
    path = c.api("apps/v1", "deployments", "a")
    c.apply(path, deployment(replicas=2), "spec")
    condition = {"type": "Available", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": None}
    status = {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 1, "conditions": [condition]}}
    c.apply(f"{path}/status", status, "status")
    c.apply(path, {**deployment(replicas=3), "status": {"replicas": 9}}, "spec")
    c.apply(f"{path}/status", {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 2}}, "status")


@case
def updates_take_ownership(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.apply(path, config_map(data={"x": "1", "y": "1"}))
    c.patch(path, {"data": {"x": "2"}}, fieldManager="one")
    c.patch(path, {"data": {"x": "3"}}, fieldManager="two")
    c.patch(path, {"data": {"x": None}}, fieldManager="one")
    c.patch(path, {"metadata": {"managedFields": []}})
    c.patch(path, {"metadata": {"managedFields": [{}]}})


@case
def a_service_and_a_pod_are_applied(c: Caller) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    ports = [{"port": 80, "name": "web"}, {"port": 80, "protocol": "UDP", "name": "dns"}]
    c.apply(c.core("services", "a"), {**service, "spec": {"ports": ports, "selector": {"app": "a"}}}, "one")
    c.apply(c.core("services", "a"), {**service, "spec": {"ports": [{"port": 443, "name": "tls"}]}}, "two")
    c.apply(c.core("services", "a"), {**service, "spec": {"selector": {"app": "b"}}}, "two")
    c.apply(c.core("services", "a"), {**service, "spec": {"ports": ports[:1], "selector": {"app": "a"}}}, "one")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}}}
    container = {"name": "c", "image": "nowhere.invalid/c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "emptyDir": {}}]
    c.apply(c.core("pods", "a"), {**pod, "spec": {"containers": [container], "volumes": volumes}}, "one")
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    c.apply(c.core("pods", "a", "status"), {**pod, "status": {"conditions": [condition]}}, "kubelet")
    c.apply(c.core("pods", "a", "status"), {**pod, "status": {"conditions": [{**condition, "type": "X"}]}}, "other")
    c.apply(c.core("pods", "a", "status"), {**pod, "status": {}}, "kubelet")
    c.apply(c.core("pods", "a"), {**pod, "metadata": {"name": "a"}, "spec": {"containers": [container]}}, "one")


@case
def labels_owners_and_leases_are_applied(c: Caller) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    path = c.api("coordination.k8s.io/v1", "leases", "a")
    c.apply(path, {**lease, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}, "one")
    c.apply(path, {**lease, "spec": {"holderIdentity": "two"}}, "two")
    c.apply(path, {**lease, "spec": {"holderIdentity": "two"}}, "two", force="true")
    c.patch(path, {"spec": {"renewTime": "2024-01-01T00:00:00.123456Z"}}, fieldManager="one")
    c.apply(path, {**lease, "metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}, "three")
    c.apply(path, {**lease, "metadata": {"labels": {"c": "1"}}}, "three")
    c.apply(path, {**lease, "metadata": {}}, "three")
    path = c.core("configmaps", "a")
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "5d4c8d1c-0000-4000-8000-000000000000"}
    c.apply(path, config_map(ownerReferences=[owner], finalizers=["example.com/a"]), "one")
    c.apply(path, config_map(ownerReferences=[{**owner, "uid": owner["uid"][:-1] + "1", "name": "t"}]), "two")
    c.apply(path, config_map(finalizers=["example.com/b"]), "one")
    c.apply(path, {**config_map(), "surplus": 1}, "one")
    c.apply(path, config_map(data={"x": None}), "one")
    c.apply(path, config_map(data={}), "one")
