"""Missing rights are told at start as a rule to add, and what has its rights works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import asyncop
from tests.contract.operating import operating, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.cluster import Cluster


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    pass


class Secret(asyncop.Object, api_version="v1", kind="Secret"):
    pass


def limited(cluster: Cluster, namespace: str, folder: Path, *rules: dict[str, Any]) -> Path:
    """A kubeconfig of a service account that may do only what the rules say, in one namespace."""
    call, rbac = cluster.api.call, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    call("POST", accounts, {"metadata": {"name": "limited"}})
    call("POST", f"{rbac}/roles", {"metadata": {"name": "limited"}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited"}
    subject = {"kind": "ServiceAccount", "name": "limited", "namespace": namespace}
    call("POST", f"{rbac}/rolebindings", {"metadata": {"name": "l"}, "roleRef": role, "subjects": [subject]})
    token = call("POST", f"{accounts}/limited/token", {"spec": {}})["status"]["token"]
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "limited"
    kubeconfig.write_text(json.dumps(config))
    return kubeconfig


@pytest.mark.asyncio
@pytest.mark.timeout(60)
async def test_what_is_missing_is_said_as_a_rule_and_the_rest_works_until_it_is_granted(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    maps: list[str] = []
    secrets: list[str] = []

    @asyncop.reconciler(ConfigMap, uses={ConfigMap: "delete patch_status"})
    async def on_map(obj: ConfigMap, ctx: asyncop.Context) -> None:
        maps.append(obj.metadata.name)

    @asyncop.reconciler(Secret)
    async def on_secret(obj: Secret, ctx: asyncop.Context) -> None:
        secrets.append(obj.metadata.name)

    allowed = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}
    kubeconfig = limited(control_plane, namespace, tmp_path, allowed, events)
    for kind in ("configmaps", "secrets"):
        control_plane.api.call("POST", f"/api/v1/namespaces/{namespace}/{kind}", {"metadata": {"name": "a"}})

    def rules() -> dict[str, list[dict[str, Any]]]:
        told: dict[str, list[dict[str, Any]]] = {}
        for line in logs:
            if line["event"] == "Missing right":
                told.setdefault(line["controller"], []).append(json.loads(line["rule"]))
        return told

    with capture_logs() as logs:
        async with operating(kubeconfig, namespace, on_map, on_secret) as manager:
            await until(lambda: maps == ["a"], "what has its rights works")
            await until(lambda: "on_secret" in rules(), "what is missing is told")
            assert rules()["on_map"] == [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]},
                {"apiGroups": [""], "resources": ["configmaps/status"], "verbs": ["patch"]},
            ]
            assert rules()["on_secret"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]
            assert "secrets" in str(manager._unready())
            role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/limited"
            granted = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
            control_plane.api.call("PATCH", role, {"rules": [allowed, events, granted]})
            await until(lambda: secrets == ["a"], "a right that is granted later is picked up")
            assert manager._unready() is None


def test_a_call_that_the_client_does_not_have_is_refused_when_the_file_is_loaded() -> None:
    with pytest.raises(ValueError, match="'update' is no call of the client"):
        asyncop.reconciler(ConfigMap, uses={ConfigMap: "get update"})(lambda obj, ctx: None)  # type: ignore[arg-type]
