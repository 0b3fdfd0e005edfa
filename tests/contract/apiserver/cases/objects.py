"""Creating, reading, updating and deleting single objects: names, conflicts, preconditions, grace, finalizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.apiserver.cases import case, config_map, deployment, pod

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller


@case
def names_are_checked_and_can_be_generated(c: Caller) -> None:
    maps = c.core("configmaps")
    for name in ("", "UPPER", "a_b", "-a", "a" * 254, "a.b-c"):
        c.post(maps, {"metadata": {"name": name}})
    c.post(maps, {"metadata": {"generateName": "made-"}})
    c.post(c.core("services"), {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}})
    c.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    c.post(maps, {"metadata": {"name": "a", "namespace": "other"}})
    c.post(maps, {"metadata": {"name": "a", "labels": {"a b": "x"}}})
    c.post(maps, {"metadata": {"name": "a", "labels": {"ok": "not ok"}}})
    c.post(maps, {"metadata": {"name": "a", "finalizers": ["plain"]}})
    c.post(maps, {"metadata": {"name": "a", "resourceVersion": "1"}})
    c.post(maps, {"metadata": {"name": "b"}, "data": {"a/b": "x"}})


@case
def what_is_not_there_is_named_so(c: Caller) -> None:
    c.get(c.core("configmaps", "none"))
    c.delete(c.core("configmaps", "none"))
    c.put(c.core("configmaps", "none"), config_map("none", resourceVersion="1"))
    c.patch(c.core("configmaps", "none"), {})
    c.patch(c.api("apps/v1", "deployments", "none", "status"), {})
    c.post("/api/v1/namespaces/nowhere-at-all/configmaps", config_map())
    c.get(c.core("nothings"))
    c.get("/apis/nowhere.example/v1/things")
    c.get("/api/v1/namespaces/" + c.namespace + "/configmaps/a/b")
    c.post(c.core("configmaps", "a"), config_map())
    c.get("/nope")


@case
def a_body_must_fit_its_kind(c: Caller) -> None:
    c.post(c.core("configmaps"), {**config_map(), "kind": "Secret"}, quiet=True)
    c.post(c.core("configmaps"), {**config_map(), "apiVersion": "v2"}, quiet=True)
    c.post(c.core("pods"), {"metadata": {"name": "a"}})
    c.post(
        c.core("pods"),
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "C"}, {"name": "d"}, {"name": "d"}]}},
    )
    c.post(c.core("pods"), {**pod(), "surplus": 1, "spec": {**pod()["spec"], "more": {}}}, fieldValidation="Strict")
    c.post(c.core("pods"), {**pod(), "surplus": 1, "spec": {**pod()["spec"], "more": {}}})
    c.post(c.core("configmaps"), {"metadata": {"name": "n", "labels": {}, "annotations": None}, "data": {}})
    c.post(c.api("apps/v1", "deployments"), {"metadata": {"name": "a"}, "spec": {}})
    c.post(
        c.api("apps/v1", "deployments"),
        {**deployment(), "spec": {**deployment()["spec"], "selector": {"matchLabels": {"b": "b"}}}},
    )
    c.post(c.api("coordination.k8s.io/v1", "leases"), {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0}})


@case
def a_body_can_be_yaml_and_must_be_something(c: Caller) -> None:
    maps = c.core("configmaps")
    c.call("POST", maps, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", content="application/yaml")
    for body, content in (("[]", ""), ("{", ""), ("x: {", "application/yaml"), ("{}", "text/plain")):
        refused = c.call("POST", maps, body, content=content, quiet=True)
        c.note({"status": refused.status, "reason": refused.body["reason"]})


@case
def an_update_of_an_old_version_is_refused(c: Caller) -> None:
    path = c.core("configmaps", "a")
    old = c.post(c.core("configmaps"), config_map(data={"x": "1"})).body
    c.put(path, {**old, "data": {"x": "2"}})
    c.put(path, {**old, "data": {"x": "3"}})
    c.put(path, {**old, "metadata": {**old["metadata"], "resourceVersion": ""}, "data": {"x": "4"}})
    c.patch(path, {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"x": "5"}})
    c.patch(path, {"metadata": {"uid": "another"}})
    c.put(path, {**old, "metadata": {**old["metadata"], "name": "b"}})
    c.put(path, {**old, "metadata": {**old["metadata"], "namespace": "other"}})
    lease = c.post(c.api("coordination.k8s.io/v1", "leases"), {"metadata": {"name": "a"}, "spec": {}}).body
    del lease["metadata"]["resourceVersion"]
    c.put(c.api("coordination.k8s.io/v1", "leases", "a"), lease)


@case
def an_update_that_changes_nothing_keeps_the_version(c: Caller) -> None:
    path = c.core("configmaps", "a")
    made = c.post(c.core("configmaps"), config_map(data={"x": "1"})).body
    c.put(path, made)
    c.patch(path, {"data": {"x": "1"}})
    c.put(
        path, {**made, "metadata": {**made["metadata"], "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}}
    )


@case
def what_is_immutable_stays(c: Caller) -> None:
    c.post(c.core("pods"), pod())
    c.patch(c.core("pods", "a"), {"spec": {"hostname": "other"}})
    c.patch(
        c.core("pods", "a"),
        {"spec": {"containers": [{"name": "c", "image": "nowhere.invalid/c:2"}]}},
        "application/strategic-merge-patch+json",
    )
    c.post(c.api("apps/v1", "deployments"), deployment())
    c.patch(
        c.api("apps/v1", "deployments", "a"),
        {"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}},
    )
    c.post(c.api("apps/v1", "statefulsets"), deployment(kind="StatefulSet"))
    c.patch(c.api("apps/v1", "statefulsets", "a"), {"spec": {"serviceName": "b"}})
    c.post(c.core("configmaps"), {**config_map(data={"x": "1"}), "immutable": True})
    c.patch(c.core("configmaps", "a"), {"data": {"x": "2"}})
    c.post(c.core("secrets"), {"metadata": {"name": "a"}})
    c.patch(c.core("secrets", "a"), {"type": "other"})


@case
def generation_counts_changes_of_the_spec(c: Caller) -> None:
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")):
        path = c.api("apps/v1", plural, "a")
        c.post(c.api("apps/v1", plural), deployment(kind=kind))
        c.patch(path, {"spec": {"replicas": 3}})
        c.patch(path, {"metadata": {"labels": {"x": "1"}}})
        c.patch(path, {"metadata": {"annotations": {"x": "1"}}})
        c.patch(f"{path}/status", {"status": {"replicas": 1, "observedGeneration": 1}})
        c.patch(path, {"status": {"replicas": 2}})
        c.patch(f"{path}/status", {"spec": {"replicas": 5}})
        c.delete(path, propagationPolicy="Foreground")


@case
def preconditions_of_a_deletion_must_hold(c: Caller) -> None:
    path = c.core("configmaps", "a")
    made = c.post(c.core("configmaps"), config_map())
    c.patch(path, {"data": {"x": "1"}})
    c.delete(path, {"preconditions": {"uid": "another"}})
    c.delete(path, {"preconditions": {"resourceVersion": made.version}})
    c.delete(path, {"preconditions": {"uid": made.metadata["uid"]}})
    c.get(path)


@case
def a_bound_pod_gets_its_grace(c: Caller) -> None:
    for name, options in (("a", {}), ("b", {"gracePeriodSeconds": 5}), ("c", {"gracePeriodSeconds": 0})):
        c.post(c.core("pods"), pod(name, node="nowhere"))
        c.delete(c.core("pods", name), options)
        c.get(c.core("pods", name))
    c.delete(c.core("pods", "a"), {"gracePeriodSeconds": 60})
    c.delete(c.core("pods", "a"), {"gracePeriodSeconds": 1})
    c.delete(c.core("pods", "a"), {"gracePeriodSeconds": 0})
    c.get(c.core("pods", "a"))
    c.post(c.core("pods"), pod("unbound"))
    c.delete(c.core("pods", "unbound"))
    c.get(c.core("pods", "unbound"))
    c.post(c.core("pods"), pod("done", node="nowhere"))
    c.patch(c.core("pods", "done", "status"), {"status": {"phase": "Succeeded"}})
    c.delete(c.core("pods", "done"))
    c.get(c.core("pods", "done"))
    c.delete(c.core("pods", "b"), gracePeriodSeconds=0)


@case
def finalizers_keep_an_object_until_the_last_is_gone(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.post(c.core("configmaps"), config_map(finalizers=["example.com/a", "example.com/b"]))
    c.delete(path)
    c.delete(path)
    c.patch(path, {"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}})
    c.patch(path, {"metadata": {"finalizers": ["example.com/b"]}})
    c.patch(path, {"data": {"still": "here"}})
    c.patch(path, {"metadata": {"finalizers": None}})
    c.get(path)
    c.post(c.core("pods"), pod(node="nowhere", finalizers=["example.com/a"]))
    c.delete(c.core("pods", "a"), gracePeriodSeconds=0)
    c.patch(c.core("pods", "a"), {"metadata": {"finalizers": []}})
    c.get(c.core("pods", "a"))


@case
def propagation_is_kept_as_a_finalizer(c: Caller) -> None:
    for name, policy in (("a", "Foreground"), ("b", "Orphan"), ("c", "Background"), ("d", "Sideways")):
        c.post(c.core("configmaps"), config_map(name))
        c.delete(c.core("configmaps", name), {"propagationPolicy": policy})
    c.get(c.core("configmaps"))
    c.delete(c.core("configmaps", "d"), {"propagationPolicy": "Orphan", "orphanDependents": True})


@case
def a_collection_is_deleted_by_selector(c: Caller) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        c.post(c.core("configmaps"), config_map(name, labels={"app": app}))
    c.delete(c.core("configmaps"), labelSelector="app=x")
    c.get(c.core("configmaps"))


@case
def a_namespace_being_deleted_takes_nothing_new(c: Caller) -> None:
    name = f"{c.namespace}-t"
    c.post("/api/v1/namespaces", {"metadata": {"name": name}})
    c.post(f"/api/v1/namespaces/{name}/configmaps", config_map("keeps", finalizers=["example.com/a"]))
    c.delete(f"/api/v1/namespaces/{name}")
    c.post(f"/api/v1/namespaces/{name}/configmaps", config_map())
    c.get(f"/api/v1/namespaces/{name}")
    c.delete("/api/v1/namespaces/default")


@case
def secrets_keep_bytes(c: Caller) -> None:
    c.post(c.core("secrets"), {"metadata": {"name": "a"}, "stringData": {"x": "text"}, "data": {"y": "Yg=="}})
    c.patch(c.core("secrets", "a"), {"stringData": {"y": "other"}})


@case
def events_have_two_faces(c: Caller) -> None:
    regarding = {"kind": "Pod", "name": "a", "namespace": c.namespace}
    event = {
        "metadata": {"name": "a"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "example.com/x",
        "reportingInstance": "x-1",
        "action": "Act",
        "reason": "Why",
        "regarding": regarding,
        "note": "text",
        "type": "Normal",
    }
    c.post(c.api("events.k8s.io/v1", "events"), event)
    c.get(c.core("events", "a"))
    c.post(
        c.core("events"),
        {"metadata": {"name": "b"}, "involvedObject": regarding, "reason": "R", "message": "m", "count": 2},
    )
    c.get(c.api("events.k8s.io/v1", "events", "b"))
    c.get(c.core("events"), fieldSelector="involvedObject.name=a,reason=Why")
    c.get(c.api("events.k8s.io/v1", "events"), fieldSelector="reason=Why")
