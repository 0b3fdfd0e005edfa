"""Nodes that exist only as objects, and an operator that can't tell: stuckPods against a real API server.

A test says what kubelets, controllers and people would do (taint, renew, report, delete) and looks at what is left.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

import asyncop
from asyncop.operators.stuckPods import StuckPodsOptions, build
from tests.contract.operating import operating, until
from tests.testbed.api import Api, ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.testbed.cluster import Cluster

UNREACHABLE = "node.kubernetes.io/unreachable"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SHORT = {
    "mode": "delete",
    "taint_age": asyncop.Duration(0.5),
    "lease_window": asyncop.Duration(1.0),
    "extra_grace": asyncop.Duration(0),
    "startup_freeze": asyncop.Duration(0),
}


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class World:
    """Two nodes of one test's own: `dead`, which the test may kill, and `peer`, which stays healthy."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.dead, self.peer = f"dead-{namespace}", f"peer-{namespace}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    @contextlib.contextmanager
    def standing(self) -> Iterator[World]:
        for node in (self.dead, self.peer):
            self.api.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            self.set_ready(node, "True")
            self.api.call("POST", LEASES, {"metadata": {"name": node}, "spec": {"holderIdentity": node}})
            self.renew(node)
        try:
            yield self
        finally:
            for node in (self.dead, self.peer):
                for path in (f"/api/v1/nodes/{node}", f"{LEASES}/{node}"):
                    with contextlib.suppress(ApiError):
                        self.api.call("DELETE", path)

    # -- what kubelets and the node controller do

    def set_ready(self, node: str, status: str) -> None:
        condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
        condition |= {"lastTransitionTime": now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.api.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}})

    def taint(self, node: str, key: str = UNREACHABLE, age: float = 60) -> None:
        added = (now() - dt.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        taints = [{"key": key, "effect": "NoExecute", "timeAdded": added}]
        self.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})

    def untaint(self, node: str) -> None:
        self.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}})

    def renew(self, node: str) -> None:
        renewed = now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.api.call("PATCH", f"{LEASES}/{node}", {"spec": {"renewTime": renewed, "leaseDurationSeconds": 40}})

    def kill(self, node: str, age: float = 60) -> None:
        """What the cluster shows of a node that has been dead for `age` seconds."""
        self.set_ready(node, "Unknown")
        self.taint(node, age=age)

    def come_back(self, node: str) -> None:
        """What the cluster shows once the kubelet is there again."""
        self.renew(node)
        self.set_ready(node, "True")
        self.untaint(node)

    def report(self, pod: str) -> None:
        """The kubelet says something of a Pod."""
        self.api.call("PATCH", f"{self._pods}/{pod}/status", {"status": {"message": f"seen at {now()}"}})

    # -- Pods

    def pod(self, name: str, owner: str | None = "StatefulSet", **parts: Any) -> str:
        """A Pod on the dead node; returns its uid."""
        metadata: dict[str, Any] = {"name": name, **parts.pop("metadata", {})}
        if owner:
            reference = {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "0-0", "controller": True}
            metadata["ownerReferences"] = [reference]
        container = {"name": "c", "image": "example.com/none"}
        spec = {"nodeName": self.dead, "containers": [container], "automountServiceAccountToken": False, **parts}
        made = self.api.call("POST", self._pods, {"metadata": metadata, "spec": spec})
        return str(made["metadata"]["uid"])

    def terminate(self, name: str, grace: int = 1) -> None:
        self.api.call("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": grace})

    def stuck(self, name: str = "web-0", **parts: Any) -> str:
        """A Terminating Pod on the dead node; returns its uid."""
        uid = self.pod(name, **parts)
        self.terminate(name)
        return uid

    def uid(self, name: str) -> str | None:
        try:
            return str(self.api.call("GET", f"{self._pods}/{name}")["metadata"]["uid"])
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def reasons(self, name: str) -> list[str]:
        """The reasons of our Events about a Pod, in the order they were told."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        events = [event for event in self.api.call("GET", path)["items"] if event["regarding"]["name"] == name]
        return [event["reason"] for event in sorted(events, key=lambda event: str(event["eventTime"]))]

    # -- waiting

    async def until_gone(self, name: str) -> None:
        await until(lambda: self.uid(name) is None, f"{name} is gone")

    async def until_told(self, name: str, reason: str) -> None:
        await until(lambda: reason in self.reasons(name), f"{reason} is told of {name}")


@pytest.fixture
def world(control_plane: Cluster, namespace: str) -> Iterator[World]:
    """Two simulated nodes of the test's own."""
    with World(control_plane.api, namespace).standing() as world:
        yield world


@contextlib.asynccontextmanager
async def guarding(world: World, kubeconfig: Path, **options: Any) -> AsyncIterator[asyncop.Manager]:
    """StuckPods at work in the test's namespace, with short windows; it must end cleanly."""
    declarations = build(StuckPodsOptions(**{**SHORT, **options}))
    reconcilers, tasks = declarations.reconcilers, declarations.tasks
    async with operating(kubeconfig, world.namespace, *reconcilers, tasks=tasks) as manager:
        yield manager
