"""Patches of three forms, and what a patch may not do."""

from __future__ import annotations

from tests.contract.apiserver.cases import case, config_map, deployment, pod
from tests.contract.apiserver.transcript import JSON_PATCH, STRATEGIC, Caller


@case
def a_merge_patch_merges_and_removes(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.post(c.core("configmaps"), config_map(data={"x": "1", "y": "2"}, labels={"a": "1"}))
    c.patch(path, {"data": {"x": None, "z": "3"}})
    c.patch(path, {"data": None})
    c.patch(path, {"metadata": {"labels": None}})
    c.patch(path, {"metadata": {"name": "other"}})
    c.patch(path, {"data": {"x": 1}})
    c.patch(path, {"surplus": 1}, fieldValidation="Strict")
    c.patch(path, {}, content="text/plain")


@case
def a_json_patch_does_all_or_nothing(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.post(c.core("configmaps"), config_map(data={"x": "1"}, annotations={"a/b": "~"}))
    c.patch(
        path,
        [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}],
        JSON_PATCH,
    )
    c.patch(
        path,
        [{"op": "add", "path": "/data/y", "value": "1"}, {"op": "test", "path": "/data/x", "value": "1"}],
        JSON_PATCH,
    )
    c.patch(path, [{"op": "remove", "path": "/metadata/annotations/a~1b"}], JSON_PATCH)
    c.patch(
        path,
        [{"op": "copy", "from": "/data/x", "path": "/data/z"}, {"op": "move", "from": "/data/x", "path": "/data/w"}],
        JSON_PATCH,
    )
    c.patch(
        path,
        [
            {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"},
        ],
        JSON_PATCH,
    )
    c.patch(path, [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH)
    for operation in ({"op": "remove", "path": "/data/none"}, {"op": "replace", "path": "/data/none", "value": "1"}):
        c.patch(path, [operation], JSON_PATCH)


@case
def a_json_patch_that_does_not_fit_is_refused(c: Caller) -> None:
    path = c.core("configmaps", "a")
    c.post(c.core("configmaps"), config_map(data={"x": "1"}, finalizers=["example.com/a"]))
    for operation in (
        {"op": "add", "path": "/data/none/deeper", "value": "1"},
        {"op": "add", "path": "/metadata/finalizers/5", "value": "example.com/b"},
        {"op": "replace", "path": "/metadata/finalizers/5", "value": "example.com/b"},
        {"op": "remove", "path": "/metadata/finalizers/5"},
        {"op": "copy", "from": "/data/none", "path": "/data/y"},
        {"op": "move", "from": "/data/none", "path": "/data/y"},
        {"op": "test", "path": "/data/none", "value": "1"},
        {"op": "test", "path": "/data/none", "value": None},
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/metadata/finalizers/0", "value": "example.com/c"},
        {"op": "replace", "path": "/data", "value": {"z": "1"}},
    ):
        answer = c.call("PATCH", path, [operation], content=JSON_PATCH, quiet=True)
        c.note({"operation": operation, "status": answer.status, "data": answer.body.get("data")})
    for body in ({"op": "test"}, [{"op": "sideways", "path": "/data"}], [1]):
        refused = c.call("PATCH", path, body, content=JSON_PATCH, quiet=True)
        c.note({"body": body, "status": refused.status})


@case
def a_strategic_patch_merges_lists_by_key(c: Caller) -> None:
    path = c.api("apps/v1", "deployments", "a")
    c.post(c.api("apps/v1", "deployments"), deployment())
    container = {
        "name": "c",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 80}],
    }
    c.patch(path, _template([container]), STRATEGIC)
    c.patch(
        path,
        _template([{"name": "c", "env": [{"name": "B", "value": "3"}, {"name": "A", "$patch": "delete"}]}]),
        STRATEGIC,
    )
    c.patch(path, _template([{"name": "d", "image": "nowhere.invalid/d"}]), STRATEGIC)
    c.patch(path, _template([{"name": "c", "$patch": "delete"}]), STRATEGIC)
    c.patch(path, {"metadata": {"finalizers": ["example.com/a"]}}, STRATEGIC)
    c.patch(path, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    c.patch(path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}, STRATEGIC)
    c.patch(path, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, STRATEGIC)
    c.post(c.core("pods"), pod())
    for kind in ("Ready", "Other", "Ready"):
        condition = {"type": kind, "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        c.patch(c.core("pods", "a", "status"), {"status": {"conditions": [condition]}}, STRATEGIC)


def _template(containers: list[dict[str, object]]) -> dict[str, object]:
    return {"spec": {"template": {"spec": {"containers": containers}}}}
