"""Two replicas as the chart installs them, one a node, with an operator that writes for as long as it leads."""

import http.client
import json
from typing import Any

from tests.e2e.outside import ROOT
from tests.e2e.trail import Trail
from tests.testbed.cluster import Cluster
from tests.testbed.errors import TestbedError
from tests.testbed.installation import CHART
from tests.testbed.node import Node
from tests.testbed.processes import wait_until
from tests.testbed.workload import container_id, is_ready, is_terminating

Json = dict[str, Any]

_READY = 60.0


class Twins:
    """The release `twins` in its namespace; times of the election in seconds."""

    name = "twins"

    def __init__(self, cluster: Cluster, lease: float, deadline: float, retry: float) -> None:
        self._cluster = cluster
        self._values = {
            # Something must be on, and this only looks.
            "controllers": {"stuckPods": {"enabled": True}},
            "leaderElection": {
                "leaseDuration": f"{lease:g}s",
                "renewDeadline": f"{deadline:g}s",
                "retryPeriod": f"{retry:g}s",
            },
            "extraArgs": ["/code/diary.py"],
            "extraVolumes": [{"name": "code", "configMap": {"name": "code"}}],
            "extraVolumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
            "resources": {},
        }

    def install(self) -> None:
        """Install it and return when both Pods are Ready.

        Raises:
            TestbedError: they weren't in time.
        """
        code = (ROOT / "tests/e2e/operators/diary.py").read_text()
        api, core = self._cluster.api, f"/api/v1/namespaces/{self.name}/configmaps"
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        api.call("POST", core, {"metadata": {"name": "code"}, "data": {"diary.py": code}})
        api.call("POST", core, {"metadata": {"name": "diary", "labels": {"diary": "true"}}})
        account = f"--serviceaccount={self.name}:{self.name}-asyncop"
        self._cluster.kubectl("create", "clusterrolebinding", "twins-write", "--clusterrole=edit", account)
        arguments = ["install", self.name, CHART, "--namespace", self.name, "--values", "-"]
        self._cluster.run("helm", *arguments, stdin=json.dumps(self._values))
        if not wait_until(lambda: sum(map(is_ready, self.pods())) == 2, _READY):
            raise TestbedError(
                f"the twins were not Ready after {_READY:.0f} s: {[pod['status'] for pod in self.pods()]}"
            )

    def uninstall(self) -> None:
        """Remove it and return when its Pods are gone."""
        self._cluster.run("helm", "uninstall", self.name, "--namespace", self.name)
        self._cluster.kubectl("delete", "clusterrolebinding", "twins-write")
        self._cluster.kubectl("delete", "namespace", self.name, timeout=120)

    def trail(self) -> Trail:
        """What the two write from now on."""
        return Trail(self._cluster.audit_log, {pod["metadata"]["name"] for pod in self.pods()})

    def leader(self) -> Json:
        """The Pod that holds the Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.name}/leases/{self.name}"
        holder = self._cluster.api.call("GET", path)["spec"]["holderIdentity"].partition("_")[0]
        (found,) = [pod for pod in self.pods() if pod["metadata"]["name"] == holder]
        return found

    def other(self, than: Json) -> Json:
        """The Pod that isn't that one."""
        (found,) = [pod for pod in self.pods() if pod["metadata"]["name"] != than["metadata"]["name"]]
        return found

    def pods(self) -> list[Json]:
        """As they are now."""
        items = self._cluster.api.call("GET", f"/api/v1/namespaces/{self.name}/pods")["items"]
        return [pod for pod in items if not is_terminating(pod)]

    def node_of(self, pod: Json) -> Node:
        return self._cluster.node(pod["spec"]["nodeName"])

    def kill(self, pod: Json) -> None:
        """`kill -9` of its process."""
        self.node_of(pod).kill_container(container_id(pod))

    def has_said(self, pod: Json, message: str) -> bool:
        """Whether that is in its log."""
        return f'"msg":"{message}"' in self._cluster.kubectl("logs", "--namespace", self.name, pod["metadata"]["name"])

    @staticmethod
    def answers_ready(pod: Json) -> bool:
        """What it says itself, asked as its kubelet does: without the API server."""
        connection = http.client.HTTPConnection(pod["status"]["podIP"], 8081, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        finally:
            connection.close()


def restarts(pod: Json) -> int:
    """How often its container was started again."""
    count: int = pod["status"]["containerStatuses"][0]["restartCount"]
    return count


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])
