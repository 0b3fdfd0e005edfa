"""Every kind of the table through every verb, and what each kind's defaults are."""

from __future__ import annotations

from typing import Any

from tests.contract.apiserver.cases import CASES, Case, config_map, deployment, pod
from tests.contract.apiserver.transcript import JSON_PATCH, STRATEGIC, Caller

RBAC = "rbac.authorization.k8s.io"
_RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_JOB = {
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "nowhere.invalid/c:latest"}]}}
}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_ROLE = {"apiGroup": RBAC, "kind": "Role", "name": "a"}

TABLE: dict[str, tuple[str, str, bool, dict[str, Any]]] = {
    "Namespace": ("", "namespaces", False, {}),
    "Node": ("", "nodes", False, {"spec": {"podCIDR": "10.1.0.0/24"}}),
    "Pod": ("", "pods", True, pod()),
    "Service": ("", "services", True, {"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}}),
    "ConfigMap": ("", "configmaps", True, config_map(data={"x": "1"})),
    "Secret": ("", "secrets", True, {"stringData": {"x": "1"}}),
    "Event": ("", "events", True, {"involvedObject": {"kind": "Pod", "name": "a", "namespace": "NS"}, "reason": "Why"}),
    "ServiceAccount": ("", "serviceaccounts", True, {}),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims", True, {"spec": _CLAIM}),
    "Lease": ("coordination.k8s.io", "leases", True, {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
    "Deployment": ("apps", "deployments", True, deployment()),
    "StatefulSet": ("apps", "statefulsets", True, deployment(kind="StatefulSet")),
    "DaemonSet": ("apps", "daemonsets", True, deployment(kind="DaemonSet")),
    "ReplicaSet": ("apps", "replicasets", True, deployment(kind="ReplicaSet")),
    "Job": ("batch", "jobs", True, {"spec": _JOB}),
    "PodDisruptionBudget": (
        "policy",
        "poddisruptionbudgets",
        True,
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
    ),
    "Role": (RBAC, "roles", True, {"rules": _RULES}),
    "RoleBinding": (RBAC, "rolebindings", True, {"roleRef": _ROLE, "subjects": [{"kind": "User", "name": "u"}]}),
    "ClusterRole": (RBAC, "clusterroles", False, {"rules": _RULES}),
    "ClusterRoleBinding": (RBAC, "clusterrolebindings", False, {"roleRef": {**_ROLE, "kind": "ClusterRole"}}),
}


def _through_all_verbs(kind: str) -> Case:
    group, plural, namespaced, content = TABLE[kind]

    def run(c: Caller) -> None:
        prefix = f"/apis/{group}/v1" if group else "/api/v1"
        collection = f"{prefix}/namespaces/{c.namespace}/{plural}" if namespaced else f"{prefix}/{plural}"
        name = "a" if namespaced else f"{c.namespace}-a"
        labels = {"case": c.namespace}
        text = {**content, "metadata": {"name": name, "labels": labels}}
        if "involvedObject" in text:
            text["involvedObject"] = {**text["involvedObject"], "namespace": c.namespace}
        obj = f"{collection}/{name}"
        c.post(collection, text, dryRun="All")
        c.get(obj)
        c.post(collection, text)
        c.post(collection, text)
        made = c.get(obj)
        c.get(collection, labelSelector=f"case={c.namespace}")
        c.put(obj, {**made.body, "metadata": {**made.metadata, "annotations": {"put": "1"}}})
        c.put(obj, made.body)
        c.patch(obj, {"metadata": {"annotations": {"merge": "1"}}})
        c.patch(obj, {"metadata": {"annotations": {"merge": "1"}}})
        c.patch(obj, {"metadata": {"annotations": {"strategic": "1"}}}, STRATEGIC)
        c.patch(obj, [{"op": "add", "path": "/metadata/annotations/json", "value": "1"}], JSON_PATCH)
        c.patch(obj, {"metadata": {"annotations": {"dry": "1"}}}, dryRun="All")
        c.patch(obj, {"status": {}, "metadata": {"labels": {"x": "y"}}}, fieldValidation="Strict")
        if kind != "DaemonSet":  # kube-apiserver leaves an annotation out there that it adds everywhere else
            c.get(obj, accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        c.patch(f"{obj}/status", {"metadata": {"annotations": {"status": "1"}, "labels": {"status": "1"}}})
        c.put(f"{obj}/status", c.call("GET", obj, quiet=True).body)
        c.get(f"{obj}/status")
        c.get(f"{obj}/nothing")
        c.post(obj, text)
        c.delete(obj, dryRun="All")
        c.delete(obj, {"preconditions": {"uid": "another"}})
        c.delete(obj)
        c.get(obj)

        _apply_and_delete_all(c, kind, collection, text)

    run.__name__ = f"{kind}_goes_through_all_verbs"
    return run


def _apply_and_delete_all(c: Caller, kind: str, collection: str, text: dict[str, Any]) -> None:
    name = f"{text['metadata']['name']}-2"
    group = TABLE[kind][0]
    labels = text["metadata"]["labels"]
    config = {
        **text,
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
    }
    c.apply(f"{collection}/{name}", config, "one")
    c.apply(f"{collection}/{name}", config, "two")
    c.apply(f"{collection}/{name}", {**config, "metadata": {"name": name}}, "one")
    c.apply(f"{collection}/{name}", config, "one", dryRun="All")
    if TABLE[kind][2]:  # cluster-wide the real server has objects of its own, which a page then ends before
        c.get(collection, labelSelector=f"case={c.namespace}", limit=1)
    c.delete(collection, labelSelector=f"case={c.namespace}")
    c.get(collection, labelSelector=f"case={c.namespace}")
    if kind == "Namespace":
        c.delete(f"{collection}/{name}")


for _kind in TABLE:
    _case = _through_all_verbs(_kind)
    CASES[_case.__name__] = _case
