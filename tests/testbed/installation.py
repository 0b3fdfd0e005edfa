"""asyncop on a test bed as a user would have it: the image that `make image` builds, installed by the chart.

Left to the callers: the cluster, and how long they want to wait for what.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.testbed import image_build
from tests.testbed.cluster import Cluster
from tests.testbed.errors import TestbedError
from tests.testbed.processes import wait_until
from tests.testbed.workload import is_ready, is_terminating

Json = dict[str, Any]

CHART = image_build.ROOT / "helm"
_IMAGE = "asyncop:dev"
"""As the Makefile names it; the archive also has the tag that the chart asks for by default."""

SHORT_WINDOWS: Mapping[str, str] = {
    "taintAge": "3s",
    "leaseWindow": "10s",
    "extraGrace": "1s",
    "startupFreeze": "0s",
}
"""Options of stuckPods for a test bed: its kubelets renew their Leases every 2 s, so ten seconds are five renewals."""

_READY_TIMEOUT = 120.0
_GONE_TIMEOUT = 120.0


def build_image() -> Path:
    """Build the image of this checkout, unless that is done; returns its archive, for Cluster.load_image().

    Raises:
        MissingToolError: this machine can't build it.
        TestbedError: a step failed.
    """
    archive = image_build.default_archive()
    image_build.build(_IMAGE, archive)
    return archive


class Installation:
    """One release of the chart, `asyncop` in the namespace `asyncop`, for the whole cluster."""

    name = namespace = "asyncop"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def arguments(self, node: str) -> list[str]:
        """What follows `helm` in an installation that force-deletes after short windows: one Pod, on `node`."""
        return [
            *("install", self.name, str(CHART), "--namespace", self.namespace, "--create-namespace"),
            *("--set", "controllers.stuckPods.enabled=true,controllers.stuckPods.mode=delete"),
            *(
                part
                for key, value in SHORT_WINDOWS.items()
                for part in ("--set", f"controllers.stuckPods.{key}={value}")
            ),
            *("--set", "replicas=1"),
            *("--set", rf"nodeSelector.kubernetes\.io/hostname={node}"),
        ]

    def install(self, node: str) -> None:
        """Install it and return when its Pod is Ready by its own probes.

        Raises:
            TestbedError: helm refused, or the Pod was not Ready in time; what it said is in the message.
        """
        self._cluster.run("helm", *self.arguments(node))
        if not wait_until(lambda: any(is_ready(pod) for pod in self._pods()), _READY_TIMEOUT):
            raise TestbedError(f"asyncop's Pod was not Ready after {_READY_TIMEOUT:.0f} s:\n{self._complaints()}")

    def uninstall(self) -> None:
        """Remove the release and its namespace, and return when they are gone: nobody acts any more."""
        self._cluster.run("helm", "uninstall", self.name, "--namespace", self.namespace)
        self._cluster.kubectl("delete", "namespace", self.namespace, timeout=_GONE_TIMEOUT)

    def pod(self) -> Json:
        """The operator's one Pod.

        Raises:
            TestbedError: there is none, or more than one.
        """
        pods = self._pods()
        if len(pods) != 1:
            raise TestbedError(f"one Pod of asyncop was expected, not {len(pods)}")
        return pods[0]

    def log(self) -> str:
        """All that the operator's Pod has said since it started."""
        return self._cluster.kubectl("logs", "--namespace", self.namespace, self.pod()["metadata"]["name"])

    def metrics(self) -> str:
        """What its metrics port says, by way of the API server."""
        path = f"{self._path}/{self.pod()['metadata']['name']}:8080/proxy/metrics"
        return self._cluster.api.text("GET", path)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _pods(self) -> list[Json]:
        answer = self._cluster.api.call("GET", f"{self._path}?labelSelector=app.kubernetes.io/instance%3D{self.name}")
        return [pod for pod in answer["items"] if not is_terminating(pod)]

    def _complaints(self) -> str:
        """The Pod's state and last words, for a person who wonders why it isn't Ready."""
        selector = f"--selector=app.kubernetes.io/instance={self.name}"
        said = []
        for words in (["get", "pods", selector, "-o", "wide"], ["logs", selector, "--tail=5"]):
            try:
                said.append(self._cluster.kubectl("--namespace", self.namespace, *words))
            except TestbedError as error:
                said.append(str(error))
        return "\n".join(said).strip()


def events_of(cluster: Cluster, namespace: str, operator: str = Installation.name) -> list[Json]:
    """What an operator of that name has said about objects of a namespace, oldest first."""
    events = cluster.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    own = [event for event in events if event["reportingController"] == f"asyncop.dev/{operator}"]
    return sorted(own, key=lambda event: str(event["eventTime"]))
