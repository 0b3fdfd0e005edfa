"""What the nodes carry in tests and in the demo: a StatefulSet of two, one Pod a node, each quick to leave a lost node.

Both see the cluster through the test bed's own client, so that asyncop is not judged by itself.
"""

from collections.abc import Iterator
from typing import Any

from tests.testbed.cluster import Cluster
from tests.testbed.images import PAUSE

Json = dict[str, Any]

_LABELS = {"app": "web"}
_SELECTOR = {"matchLabels": _LABELS}
_HOSTNAME = "kubernetes.io/hostname"

NEVER_TOGETHER: Json = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": _HOSTNAME, "labelSelector": _SELECTOR}]
        }
    }
}
"""One Pod a node whatever happens: with one node lost, the second Pod waits for it."""

SPREAD_OVER_LIVING_NODES: Json = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": _HOSTNAME,
            "labelSelector": _SELECTOR,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
        }
    ]
}
"""One Pod a node while both live; a replacement may run where the survivor does."""

TOLERATION = 2
"""Seconds that the Pods stay bound to a node with a NoExecute taint."""


class Workload:
    """The StatefulSet `web` in one namespace, and what the API server says about its Pods."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._api = cluster.api
        self._pods = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dweb"
        self._sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"

    def create(self, placement: Json) -> None:
        """Ask for it; `placement` is one of the constants above. Does not wait."""
        self._api.call("POST", self._sets, _stateful_set(placement))

    def pods(self) -> list[Json]:
        """As they are now, the Terminating ones included."""
        items: list[Json] = self._api.call("GET", self._pods)["items"]
        return items

    def running_on(self) -> set[str]:
        """The nodes of those that are Ready and not on their way out."""
        return {pod["spec"]["nodeName"] for pod in self.pods() if is_ready(pod) and not is_terminating(pod)}

    def pod_on(self, node: str) -> Json:
        """The one Pod there; it must exist."""
        return next(pod for pod in self.pods() if pod["spec"].get("nodeName") == node)

    def pod(self, name: str) -> Json | None:
        """The Pod of that name, whichever uid it has by now."""
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)


def is_ready(pod: Json) -> bool:
    return ("Ready", "True") in {(item["type"], item["status"]) for item in pod["status"].get("conditions", ())}


def is_terminating(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def container_id(pod: Json) -> str:
    """What containerd calls the Pod's only container; empty before there is one."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", "")).removeprefix("containerd://")


def taints_of(cluster: Cluster, node: str) -> set[tuple[str, str]]:
    """Key and effect of the taints on a Node."""
    taints = cluster.api.call("GET", f"/api/v1/nodes/{node}")["spec"].get("taints", ())
    return {(taint["key"], taint["effect"]) for taint in taints}


def is_unreachable(cluster: Cluster, node: str) -> bool:
    """Whether the node controller has given a node up, so that its Pods are to leave."""
    return ("node.kubernetes.io/unreachable", "NoExecute") in taints_of(cluster, node)


def _stateful_set(placement: Json) -> Json:
    pod = {
        "terminationGracePeriodSeconds": 1,
        "tolerations": list(_tolerations()),
        "containers": [{"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}],
        **placement,
    }
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "serviceName": "web",
            "selector": _SELECTOR,
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _tolerations() -> Iterator[Json]:
    for condition in ("unreachable", "not-ready"):
        key = f"node.kubernetes.io/{condition}"
        yield {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION}
