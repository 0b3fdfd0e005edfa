"""What a controller manager would do: dependents go with their owners, namespaces with their content."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.contract.apiserver.cases import config_map, pod
from tests.contract.apiserver.cases.custom import Defined

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.apiserver.transcript import Answer, Caller


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def owned(c: Caller, name: str, *owners: Answer, **more: Any) -> None:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o.metadata["name"], "uid": o.metadata["uid"], **more}
        for o in owners
    ]
    assert c.post(c.core("configmaps"), config_map(name, ownerReferences=references)).status == 201


def is_gone(c: Caller, name: str) -> bool:
    return c.get(c.core("configmaps", name)).status == 404


def test_dependents_go_after_their_last_owner(c: Caller) -> None:
    one, two = (c.post(c.core("configmaps"), config_map(name)) for name in ("one", "two"))
    owned(c, "child", one, two)
    c.delete(c.core("configmaps", "one"))
    until(lambda: len(c.get(c.core("configmaps", "child")).metadata["ownerReferences"]) == 1)
    c.delete(c.core("configmaps", "two"))
    until(lambda: is_gone(c, "child"))


def test_an_owner_in_the_foreground_waits_for_what_blocks_it(c: Caller) -> None:
    owner = c.post(c.core("configmaps"), config_map("owner"))
    owned(c, "child", owner, blockOwnerDeletion=True)
    c.patch(c.core("configmaps", "child"), {"metadata": {"finalizers": ["example.com/a"]}})
    c.delete(c.core("configmaps", "owner"), propagationPolicy="Foreground")
    until(lambda: "deletionTimestamp" in c.get(c.core("configmaps", "child")).metadata)
    assert c.get(c.core("configmaps", "owner")).metadata["finalizers"] == ["foregroundDeletion"]
    c.patch(c.core("configmaps", "child"), {"metadata": {"finalizers": None}})
    until(lambda: is_gone(c, "child") and is_gone(c, "owner"))


def test_orphans_stay_without_their_owner(c: Caller) -> None:
    owner = c.post(c.core("configmaps"), config_map("owner"))
    owned(c, "child", owner)
    c.delete(c.core("configmaps", "owner"), propagationPolicy="Orphan")
    until(lambda: is_gone(c, "owner"))
    assert "ownerReferences" not in c.get(c.core("configmaps", "child")).metadata


def test_a_child_of_nobody_is_collected(c: Caller) -> None:
    owner = c.post(c.core("configmaps"), config_map("owner"))
    c.delete(c.core("configmaps", "owner"))
    owned(c, "late", owner)
    until(lambda: is_gone(c, "late"))


def test_custom_objects_own_and_are_owned(c: Caller) -> None:
    kind = Defined(c)
    widget = c.post(kind.at(), kind.widget(size=1))
    owned(c, "child", widget)
    c.delete(kind.at("a"))
    until(lambda: is_gone(c, "child"))


def test_a_namespace_goes_when_it_is_empty(c: Caller) -> None:
    c.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    inside = "/api/v1/namespaces/n"
    c.post(f"{inside}/configmaps", config_map(finalizers=["example.com/a"]))
    c.post(f"{inside}/secrets", {"metadata": {"name": "a"}})
    c.post(f"{inside}/pods", pod(node="nowhere"))
    c.delete(inside)
    until(lambda: c.get(f"{inside}/secrets/a").status == 404)
    assert c.get(inside).body["status"]["phase"] == "Terminating"
    c.patch(f"{inside}/configmaps/a", {"metadata": {"finalizers": None}})
    assert c.get(f"{inside}/pods/a").metadata["deletionGracePeriodSeconds"] == 30
    c.delete(f"{inside}/pods/a", gracePeriodSeconds=0)
    until(lambda: c.get(inside).status == 404)


def test_a_definition_takes_its_objects_along(c: Caller) -> None:
    kind = Defined(c)
    c.post(kind.at(), kind.widget(size=1))
    with c.watch(kind.at(), resourceVersion=c.get(kind.at()).version) as watch:
        kind.remove()
        assert [event["type"] for event in watch.rest()] == ["DELETED"]
    assert c.get(kind.path).status == 404


def test_a_claim_goes_after_the_last_pod_that_mounts_it(c: Caller) -> None:
    claims = c.core("persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    c.post(claims, {"metadata": {"name": "a"}, "spec": spec})
    user = pod(node="nowhere")
    user["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]
    c.post(c.core("pods"), user)
    c.delete(f"{claims}/a")
    assert c.get(f"{claims}/a").metadata["finalizers"] == ["kubernetes.io/pvc-protection"]
    c.delete(c.core("pods", "a"), gracePeriodSeconds=0)
    until(lambda: c.get(f"{claims}/a").status == 404)
