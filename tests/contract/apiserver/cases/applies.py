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
