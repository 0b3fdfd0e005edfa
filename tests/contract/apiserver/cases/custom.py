"""Custom kinds: definitions, pruning, defaults, checks, the status, versions, apply, scale."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.apiserver.cases import case
from tests.contract.apiserver.transcript import LIMIT, STRATEGIC, Caller

_ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "value": {"type": "integer"}},
}
_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "replicas": {"type": "integer", "default": 1},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
        "title": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "on": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _ITEM,
        },
        "whole": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {"type": "object", "default": {}, "properties": {"depth": {"type": "integer", "default": 3}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
    },
}
_STATUS = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}


def definition(group: str, **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wg"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [{**one, **version}]},
    }


_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Defined:
    """A custom kind of the case's own."""

    def __init__(
        self, c: Caller, *, text: dict[str, Any] | None = None, namespaced: bool = True, **version: Any
    ) -> None:
        self.group = f"{c.namespace}.example.com"
        self._c, self._namespaced = c, namespaced
        self.path = f"{_DEFINITIONS}/widgets.{self.group}"
        c.post(_DEFINITIONS, text or definition(self.group, **version), quiet=True)
        self._until(lambda: c.call("GET", self.at(), quiet=True).status == 200)

    def at(self, name: str = "", below: str = "", version: str = "v1") -> str:
        if not self._namespaced:
            return f"/apis/{self.group}/{version}/widgets" + (f"/{name}" if name else "")
        return self._c.api(f"{self.group}/{version}", "widgets", name, below)

    def widget(self, name: str = "a", **spec: Any) -> dict[str, Any]:
        return {"apiVersion": f"{self.group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}

    def remove(self) -> None:
        self._c.delete(self.path, quiet=True)
        self._until(lambda: self._c.call("GET", self.at(), quiet=True).status == 404)

    def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@case
def a_definition_is_served_and_says_so(c: Caller) -> None:
    kind = Defined(c)
    found = c.call("GET", kind.path, quiet=True).body
    c.note(
        {
            "spec": found["spec"],
            "accepted": found["status"]["acceptedNames"],
            "stored": found["status"]["storedVersions"],
        }
    )
    c.note({condition["type"]: condition["status"] for condition in found["status"]["conditions"]})
    c.get(f"/apis/{kind.group}")
    resources = c.call("GET", f"/apis/{kind.group}/v1", quiet=True).body
    for resource in resources["resources"]:
        resource.pop("storageVersionHash", None)
        resource["verbs"].sort()
    c.note({**resources, "resources": sorted(resources["resources"], key=lambda resource: str(resource["name"]))})
    c.get(kind.at())
    kind.remove()
    c.get(kind.at())


@case
def custom_objects_are_pruned_and_defaulted(c: Caller) -> None:
    kind = Defined(c)
    c.post(kind.at(), kind.widget(size=1, surplus=1, open={"any": [1]}, nested={"more": 1}, port="http", maybe=None))
    c.post(kind.at(), {**kind.widget("b", size=1, surplus=1), "top": 1}, fieldValidation="Strict")
    c.patch(kind.at("a"), {"spec": {"surplus": 2, "replicas": None, "nested": {"depth": 5}}})
    surplus = {"name": "c", "labels": {"x": "1"}, "surplus": 1}
    c.post(kind.at(), {**kind.widget(size=1), "metadata": surplus})
    nameless = c.call("POST", kind.at(), {"metadata": {"name": "d"}, "spec": {"size": 1}}, quiet=True)
    c.note({"status": nameless.status, "reason": nameless.body["reason"]})
    kind.remove()


@case
def custom_objects_are_checked(c: Caller) -> None:
    kind = Defined(c)
    c.post(kind.at(), kind.widget())
    for spec in (
        {"size": 0},
        {"size": 11},
        {"size": "big"},
        {"size": 1.5},
        {"size": 1, "mode": "sideways"},
        {"size": 1, "title": "UPPER"},
        {"size": 1, "title": "a"},
        {"size": 1, "on": "yes"},
        {"size": 1, "port": True},
        {"size": 1, "tags": ["a", "a"]},
        {"size": 1, "items": [{"value": 1}]},
        {"size": 1, "items": [{"name": "a"}, {"name": "a"}]},
        {"size": 1, "whole": ["a", "b", "c"]},
        {"size": 1, "map": {"a": 1}},
        {"size": 1, "nested": []},
    ):
        c.post(kind.at(), kind.widget(**spec))
    c.post(kind.at(), {**kind.widget(size=1), "metadata": {"name": "UPPER"}})
    c.post(kind.at(), {**kind.widget(size=1), "kind": "Gadget"}, quiet=True)
    kind.remove()


@case
def custom_objects_have_status_generation_and_scale(c: Caller) -> None:
    kind = Defined(c)
    made = c.post(kind.at(), {**kind.widget(size=1), "status": {"phase": "Ignored"}}).body
    c.patch(
        kind.at("a", "status"), {"status": {"phase": "Ready"}, "spec": {"size": 2}, "metadata": {"labels": {"x": "1"}}}
    )
    c.patch(kind.at("a"), {"spec": {"size": 2}, "status": {"phase": "Ignored"}})
    c.patch(kind.at("a"), {"metadata": {"labels": {"x": "1"}}})
    c.put(kind.at("a"), made)
    del made["metadata"]["resourceVersion"]
    c.put(kind.at("a"), made)
    c.get(kind.at("a", "scale"))
    c.patch(kind.at("a", "scale"), {"spec": {"replicas": 3}})
    c.get(kind.at("a"))
    c.patch(kind.at("a"), {"spec": {"size": 3}}, STRATEGIC)
    c.patch(kind.at("a"), {"metadata": {"finalizers": ["example.com/a"]}})
    c.delete(kind.at("a"))
    c.patch(kind.at("a"), {"metadata": {"finalizers": []}})
    kind.remove()


@case
def custom_objects_are_applied(c: Caller) -> None:
    kind = Defined(c)
    c.apply(kind.at("a"), kind.widget(size=1, items=[{"name": "x", "value": 1}], tags=["t"], map={"k": "v"}), "one")
    c.apply(kind.at("a"), kind.widget(size=1, items=[{"name": "y", "value": 2}], tags=["u"], map={"l": "w"}), "two")
    c.apply(kind.at("a"), kind.widget(size=2, items=[{"name": "x", "value": 3}]), "two")
    c.apply(kind.at("a"), kind.widget(size=1), "one")
    c.apply(kind.at("a", "status"), {**kind.widget(), "spec": {"size": 9}, "status": {"phase": "Ready"}}, "status")
    c.patch(kind.at("a"), {"spec": {"whole": ["a"], "open": {"b": {"c": 1}}}}, fieldManager="patcher")
    c.apply(kind.at("a"), kind.widget(size=1, whole=["b"]), "one")
    kind.remove()


@case
def custom_objects_are_watched(c: Caller) -> None:
    kind = Defined(c)
    start = c.get(kind.at()).version
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with c.watch(kind.at(), resourceVersion=start) as watch, c.watch(kind.at(), **options) as streamed:
        c.post(kind.at(), kind.widget(size=1))
        c.patch(kind.at("a", "status"), {"status": {"phase": "Ready"}})
        c.delete(kind.at("a"))
        watch.read(3)
        streamed.read()
    c.get(kind.at(), fieldSelector="spec.size=1")
    kind.remove()


@case
def an_open_kind_keeps_everything(c: Caller) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kind = Defined(c, schema=schema, subresources=None)
    c.post(kind.at(), {**kind.widget(anything={"deep": [1, {"a": None}]}), "status": {"x": 1}})
    c.patch(kind.at("a"), {"status": {"x": 2}})
    c.patch(kind.at("a", "status"), {"status": {"x": 3}})
    c.patch(kind.at("a"), {"metadata": {"labels": {"x": "1"}}})
    kind.remove()


@case
def a_custom_kind_has_versions(c: Caller) -> None:
    group = f"{c.namespace}.example.com"
    text = definition(group)
    (one,) = text["spec"]["versions"]
    text["spec"]["versions"] = [
        one,
        {**one, "name": "v2", "storage": False},
        {**one, "name": "v1beta1", "storage": False},
    ]
    kind = Defined(c, text=text)
    c.post(kind.at(version="v2"), {**kind.widget(size=1), "apiVersion": f"{group}/v2"})
    c.get(kind.at("a"))
    c.get(kind.at(version="v1beta1"))
    c.patch(kind.at("a", version="v2"), {"spec": {"size": 2}})
    c.post(kind.at(version="v2"), kind.widget("b", size=1), quiet=True)
    c.get(f"/apis/{group}")
    start = c.get(kind.at(version="v2")).version
    with c.watch(kind.at(version="v2"), resourceVersion=start) as watch:
        c.patch(kind.at("a"), {"spec": {"size": 3}})
        c.delete(kind.at("a"))
        watch.read(2)
    kind.remove()


@case
def a_custom_kind_can_be_cluster_wide(c: Caller) -> None:
    text = definition(f"{c.namespace}.example.com")
    text["spec"]["scope"] = "Cluster"
    kind = Defined(c, text=text, namespaced=False)
    c.post(kind.at(), kind.widget(size=1))
    c.get(kind.at("a"))
    c.post(c.api(f"{kind.group}/v1", "widgets"), kind.widget("b", size=1))
    c.delete(kind.at("a"))
    kind.remove()


@case
def a_definition_must_make_sense(c: Caller) -> None:
    text = definition(f"{c.namespace}.example.com")
    for change in (
        {"metadata": {"name": "other"}},
        {"spec": {**text["spec"], "versions": []}},
    ):
        refused = c.call("POST", _DEFINITIONS, {**text, **change}, quiet=True)
        c.note({"status": refused.status, "reason": refused.body["reason"]})
