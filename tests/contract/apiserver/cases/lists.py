"""Lists: pages, versions, selectors, metadata only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.apiserver.cases import case, config_map, pod

if TYPE_CHECKING:
    from tests.contract.apiserver.transcript import Caller

PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@case
def a_list_comes_in_pages(c: Caller) -> None:
    maps = c.core("configmaps")
    for name in "edcba":
        c.post(maps, config_map(name))
    first = c.get(maps, limit=2)
    c.delete(c.core("configmaps", "d"))
    c.post(maps, config_map("bb"))
    second = c.get(maps, **{"limit": 2, "continue": first.metadata["continue"]})
    c.get(maps, **{"limit": 2, "continue": second.metadata["continue"]})
    c.get(maps, limit=100)
    rubbish = c.call("GET", maps, quiet=True, **{"limit": 2, "continue": "rubbish"})
    c.note({"status": rubbish.status, "reason": rubbish.body["reason"]})
    c.get(maps, resourceVersion="999999999")
    c.get(maps, **{"limit": 2, "continue": first.metadata["continue"], "resourceVersion": first.version})


@case
def a_list_can_be_of_a_version(c: Caller) -> None:
    maps = c.core("configmaps")
    c.post(maps, config_map("a"))
    before = c.get(maps).version
    c.post(maps, config_map("b"))
    c.get(maps, resourceVersion=before, resourceVersionMatch="Exact")
    c.get(maps, resourceVersion=before, resourceVersionMatch="NotOlderThan")
    c.get(maps, resourceVersionMatch="Exact")
    c.get(maps, resourceVersion="0", resourceVersionMatch="Exact")
    c.get(maps, resourceVersion="0", resourceVersionMatch="Nearly")
    c.get(maps, resourceVersion="abc", resourceVersionMatch="Exact")
    c.get(c.core("configmaps", "a"), resourceVersion="0")


@case
def labels_select(c: Caller) -> None:
    maps = c.core("configmaps")
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y", "tier": "1"}), ("c", {})):
        c.post(maps, config_map(name, labels=labels), quiet=True)
    for selector in ("app=x", "app!=x", "app in (x, y)", "app notin (x)", "app", "!app", "app=x,tier", "tier=1,app==y"):
        c.get(maps, labelSelector=selector)
    c.get(maps, labelSelector="app", limit=1)


@case
def fields_select(c: Caller) -> None:
    c.post(c.core("pods"), pod("a", node="one"), quiet=True)
    c.post(c.core("pods"), pod("b"), quiet=True)
    for selector in (
        "spec.nodeName=one",
        "spec.nodeName!=one",
        "spec.nodeName=",
        "metadata.name=b",
        "status.phase=Pending,metadata.name!=b",
        f"metadata.namespace={c.namespace}",
        "spec.hostNetwork=false",
    ):
        c.get(c.core("pods"), fieldSelector=selector)
    c.get(c.core("configmaps"), fieldSelector="metadata.name=none")


@case
def a_list_can_be_of_metadata_only(c: Caller) -> None:
    c.post(c.core("pods"), pod("a", labels={"x": "1"}), quiet=True)
    c.get(c.core("pods"), accept=PARTIAL)
    c.get(c.core("pods"), accept=f"{PARTIAL},application/json")


@case
def lists_span_namespaces(c: Caller) -> None:
    c.post(c.core("configmaps"), config_map("a", labels={"case": c.namespace}))
    c.get("/api/v1/configmaps", labelSelector=f"case={c.namespace}")
    c.post("/api/v1/configmaps", config_map())


@case
def what_cannot_be_selected_is_refused(c: Caller) -> None:
    for path in (
        c.core("configmaps"),
        c.core("pods"),
        c.core("secrets"),
        c.core("events"),
        c.core("services"),
        c.core("serviceaccounts"),
        "/api/v1/nodes",
        c.api("apps/v1", "deployments"),
        c.api("batch/v1", "jobs"),
        c.api("coordination.k8s.io/v1", "leases"),
        c.api("policy/v1", "poddisruptionbudgets"),
    ):
        c.get(path, fieldSelector="spec.unknown=x")
        c.get(path, fieldSelector="metadata.name=none,metadata.namespace=none")
    for selector in ("a=b=c", "a in b", "a in (b", "=b", "a>x", "in (a)"):
        refused = c.call("GET", c.core("configmaps"), labelSelector=selector, quiet=True)
        c.note({"selector": selector, "status": refused.status, "reason": refused.body.get("reason")})
    c.get(c.core("pods"), fieldSelector="rubbish")
    for name, size in (("a", "1"), ("b", "10"), ("c", "many")):
        c.post(c.core("configmaps"), config_map(name, labels={"size": size}), quiet=True)
    for selector in ("size>1", "size<2", "size>0,size<5", "size>0,size notin (10, 20)", "other>1"):
        c.get(c.core("configmaps"), labelSelector=selector)
