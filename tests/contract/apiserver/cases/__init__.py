"""The cases that both servers are put to: each is a talk with one server, whose transcripts must be equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.contract.apiserver.transcript import Caller

Case = Callable[[Caller], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """A case by its function's name."""
    assert function.__name__ not in CASES
    CASES[function.__name__] = function
    return function


def pod(name: str = "a", node: str = "", **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "nowhere.invalid/c:1"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def config_map(name: str = "a", data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return obj if data is None else {**obj, "data": data}


def deployment(
    name: str = "a", replicas: int | None = None, kind: str = "Deployment", **metadata: Any
) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "nowhere.invalid/c"}]},
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
