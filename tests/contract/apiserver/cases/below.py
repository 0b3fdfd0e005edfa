"""What is below objects: scale, eviction, binding; and discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.apiserver.cases import case, deployment, pod
from tests.contract.apiserver.cases.kinds import TABLE

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller


@case
def workloads_are_scaled(c: Caller) -> None:
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")):
        path = c.api("apps/v1", plural, "a")
        c.post(c.api("apps/v1", plural), deployment(kind=kind, replicas=2))
        scale = c.get(f"{path}/scale").body
        c.put(f"{path}/scale", {**scale, "spec": {"replicas": 3}})
        c.put(f"{path}/scale", {**scale, "spec": {"replicas": 4}})
        c.patch(f"{path}/scale", {"spec": {"replicas": 0}})
        c.patch(f"{path}/scale", {"spec": {"replicas": -1}})
        c.get(path)
    c.get(c.core("pods", "a", "scale"))


def _running(c: Caller, name: str) -> None:
    c.post(c.core("pods"), pod(name, node="nowhere", labels={"app": "a"}), quiet=True)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    c.patch(c.core("pods", name, "status"), {"status": {"phase": "Running", "conditions": [ready]}}, quiet=True)


@case
def an_eviction_heeds_budgets(c: Caller) -> None:
    def evict(name: str, **options: Any) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}
        c.post(c.core("pods", name, "eviction"), eviction)

    _running(c, "a")
    _running(c, "b")
    budgets = c.api("policy/v1", "poddisruptionbudgets")
    c.post(budgets, {"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}})
    evict("a")
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    c.patch(f"{budgets}/a/status", {"status": status})
    evict("a", deleteOptions={"dryRun": ["All"]})
    evict("a")
    c.get(c.core("pods", "a"))
    c.get(f"{budgets}/a")
    evict("b")
    evict("none")
    c.post(c.core("pods"), pod("pending", labels={"app": "a"}), quiet=True)
    evict("pending")
    c.get(c.core("pods", "pending"))


@case
def a_pod_is_bound_once(c: Caller) -> None:
    c.post(c.core("pods"), pod())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "one"},
    }
    c.post(c.core("pods", "a", "binding"), binding)
    assert c.call("GET", c.core("pods", "a"), quiet=True).body["spec"]["nodeName"] == "one"
    assert c.call("POST", c.core("pods", "a", "binding"), binding, quiet=True).status == 409


@case
def access_can_be_reviewed(c: Caller) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"resourceAttributes": {"verb": "list", "resource": "pods"}}
    answer = c.call(
        "POST",
        path,
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": review},
        quiet=True,
    )
    assert answer.status == 201
    assert answer.body["status"]["allowed"] is True
    c.get(path)


@case
def discovery_names_what_is_served(c: Caller) -> None:
    plurals = {(group, plural) for group, plural, _, _ in TABLE.values()}
    plurals |= {("apiextensions.k8s.io", "customresourcedefinitions"), ("events.k8s.io", "events")}
    for group in sorted({group for group, _ in plurals}):
        path = f"/apis/{group}/v1" if group else "/api/v1"
        found = c.call("GET", path, quiet=True).body
        known = {plural for owner, plural in plurals if owner == group}
        below = {"status", "scale", "eviction", "binding", "finalize"}
        chosen = []
        for resource in found["resources"]:
            plural, _, sub = resource["name"].partition("/")
            if plural in known and (not sub or sub in below):
                chosen.append({key: value for key, value in resource.items() if key != "storageVersionHash"})
        c.note({**found, "resources": sorted(chosen, key=lambda resource: str(resource["name"]))})
    for path in ("/api", "/apis"):
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        answer = c.call("GET", path, accept=accept, quiet=True)
        for group in sorted(answer.body["items"], key=lambda group: str(group["metadata"])):
            for version in group["versions"]:
                name = group["metadata"].get("name", "")
                chosen = [resource for resource in version["resources"] if (name, resource["resource"]) in plurals]
                for resource in chosen:
                    subs = [sub for sub in resource.pop("subresources", []) if sub["subresource"] in below]
                    c.note({"group": name, "version": version["version"], **resource, "subresources": subs})
    c.get("/apis/apps")
    c.get("/livez")
    c.get("/readyz")
    version = c.call("GET", "/version", quiet=True).body
    c.note({key: version[key] for key in ("major", "minor", "gitVersion")})
