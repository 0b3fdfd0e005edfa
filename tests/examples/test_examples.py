"""The examples do what they say, started as a user starts them; the README shows the very same files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.testbed.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.testbed.cluster import Cluster

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CRD = HERE / "greetings.yaml"
LIMIT = 30.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}"
        time.sleep(0.05)


@contextmanager
def running(cluster: Cluster, namespace: str, example: str, *flags: str) -> Iterator[None]:
    """`asyncop run EXAMPLE` until the block ends; it must stop cleanly on SIGTERM."""
    command = [
        *(sys.executable, "-m", "asyncop", "run", str(HERE / example), "-n", namespace, "--no-leader-elect", *flags),
        *("--health-bind-address", "0", "--metrics-bind-address", "0"),
    ]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = subprocess.Popen(command, env=environment, cwd=ROOT)
    try:
        yield
        process.terminate()
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()


def test_a_pod_for_every_deployment_comes_and_comes_back(control_plane: Cluster, namespace: str) -> None:
    call = control_plane.api.call
    pod = f"/api/v1/namespaces/{namespace}/pods/web"

    def uid() -> str:
        try:
            return str(call("GET", pod)["metadata"]["uid"])
        except ApiError:
            return ""

    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    with running(control_plane, namespace, "pod_for_every_deployment.py"):
        call("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": "web"}, "spec": spec})
        until(lambda: bool(uid()), "the Pod came")
        first = uid()
        call("DELETE", pod, {"gracePeriodSeconds": 0})
        until(lambda: uid() not in ("", first), "the Pod came back")


def test_pods_get_the_label_of_their_nodes_zone(control_plane: Cluster, namespace: str) -> None:
    call = control_plane.api.call
    zone = {"topology.kubernetes.io/zone": "west"}
    node = f"node-{namespace}"
    call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "none"}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    call("POST", pods, {"metadata": {"name": "web"}, "spec": spec})
    try:
        with running(control_plane, namespace, "label_pods.py"):
            call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": zone}})
            until(lambda: call("GET", f"{pods}/web")["metadata"].get("labels") == {"zone": "west"}, "labelled")
    finally:
        call("DELETE", f"/api/v1/nodes/{node}")


def test_greetings_follow_their_kind_and_end_with_it(control_plane: Cluster, namespace: str) -> None:
    call = control_plane.api.call
    one = f"/apis/example.com/v1/namespaces/{namespace}/greetings/all"
    children = f"/api/v1/namespaces/{namespace}/configmaps"

    def texts() -> dict[str, str]:
        items = call("GET", children)["items"]
        return {item["metadata"]["name"]: item["data"]["text"] for item in items if "text" in item["data"]}

    def status() -> tuple[object, object]:
        found = call("GET", one).get("status", {})
        ready = [each["reason"] for each in found.get("conditions", ())]
        return found.get("greeted"), ready

    call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(CRD.read_text()))
    try:
        with running(control_plane, namespace, "greetings.py", "--set", "controllers.greetings.word=Howdy"):
            until(lambda: is_served(control_plane, one.removesuffix("/all")), "the kind is there")
            greeting = {"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": {"name": "all"}}
            call("POST", one.removesuffix("/all"), greeting | {"spec": {"to": ["ann", "bob"]}})
            until(lambda: texts() == {"all-ann": "Howdy, ann!", "all-bob": "Howdy, bob!"}, "all are greeted")
            until(lambda: status() == (2, ["Greeted"]), "it is told")
            call("DELETE", f"{children}/all-ann")
            until(lambda: "all-ann" in texts(), "a child comes back")
            call("PATCH", one, {"spec": {"to": ["ann", "nobody"]}})
            until(lambda: status() == (2, ["Nobody"]) and "all-bob" not in texts(), "nobody can't be greeted")
            call("DELETE", one)
            until(lambda: not call("GET", one.removesuffix("/all"))["items"], "the finalizer let it go")
    finally:
        call("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.example.com")


def is_served(cluster: Cluster, path: str) -> bool:
    try:
        cluster.api.call("GET", path)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("page", ["README.md"])
def test_every_python_block_of_the_docs_is_an_example_that_is_tested(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    examples = {path.name: path.read_text() for path in HERE.glob("*.py") if not path.name.startswith("test_")}
    assert blocks
    for block in blocks:
        assert any(block.strip() in example for example in examples.values()), block
