"""The main job as it happens: `python -m tests.testbed.demo`, also `make demo`.

Makes everything it needs (Kubernetes' parts, the image, a cluster of two nodes, an installation by the chart), cuts a
node off and tells what Kubernetes and asyncop do until the node's Pod is back elsewhere. It only looks on: nothing of
what it tells is its own doing, but for the cut.

Exit codes: 0 the Pod came back and the survivor was left alone; 1 it didn't, or this machine can't do it (one line
says why); 130 after Ctrl-C. The cluster is removed whatever happens, unless `--keep` was given and all of it stood.
"""

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tests.testbed.api import ApiError, Json
from tests.testbed.binaries import binaries_dir, ensure_binaries
from tests.testbed.cluster import Cluster, clear_ruins
from tests.testbed.errors import TestbedError
from tests.testbed.installation import CHART, Installation, build_image, events_of
from tests.testbed.packages import NODE_PACKAGES, ensure_packages, require_root
from tests.testbed.processes import Identity, wait_until
from tests.testbed.state import default_root
from tests.testbed.workload import SPREAD_OVER_LIVING_NODES, Workload, is_ready, is_terminating, is_unreachable

LIMIT = 150.0
"""Seconds until we give up; it takes about 27."""
STARTED = 60.0
"""Seconds until we give up waiting for the first two Pods; it takes about 1."""
REMINDER = 15.0
"""Seconds between two signs of life while something long is being made."""

NAMESPACE = "default"
DOOMED, OTHER = "node1", "node2"


def main(argv: list[str] | None = None) -> int:
    """Tell the story; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed.demo", description="The main job of asyncop, live.")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up, and say how to look at it")
    keep: bool = parser.parse_args(argv).keep
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        _demo(keep=keep)
    except (TestbedError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, cleaning up on the way."""
    sys.exit(128 + number)


def _demo(*, keep: bool) -> None:
    require_root("making a cluster with nodes")
    binaries_dir()  # raises if there is no Go
    root = default_root()
    clear_ruins(root)
    cluster = Cluster(root / f"demo-{os.getpid()}")
    stays = False
    try:
        _set_up(cluster)
        stays = keep
        _tell(cluster)
    except (KeyboardInterrupt, SystemExit):
        stays = False
        raise
    finally:
        if stays:
            cluster.keep()
            _show_around(cluster)
        else:
            _clean_up(cluster)


def _clean_up(cluster: Cluster) -> None:
    """Take it down, undisturbed by the impatient: every step of it has a limit of its own."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        _say("Cleaning up")
    cluster.down()


# -- preparation


def _set_up(cluster: Cluster) -> None:
    installation = Installation(cluster)
    with _step("Kubernetes: its parts are compiled once, which takes minutes, and kept"):
        ensure_packages(NODE_PACKAGES)
        ensure_binaries()
    with _step("asyncop's image: built if anything in it has changed, as by `make image`"):
        archive = build_image()
    with _step(f"A cluster: a control plane, {DOOMED} and {OTHER}, with the image on both"):
        cluster.up(nodes=2, owner=Identity.of(os.getpid()))
        cluster.load_image(archive)
    with _step(_as_typed(installation.arguments(OTHER))):
        installation.install(node=OTHER)
    _say(f"asyncop is Ready on {installation.pod()['spec']['nodeName']}")


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Say what begins, and every now and then that it still goes on."""
    _say(what)
    has_ended = threading.Event()
    reminder = threading.Thread(target=_remind, args=(has_ended,), daemon=True)
    reminder.start()
    try:
        yield
    finally:
        has_ended.set()
        reminder.join()


def _remind(has_ended: threading.Event) -> None:
    started = time.monotonic()
    while not has_ended.wait(REMINDER):
        _say(f"  … still at it after {time.monotonic() - started:.0f} s")


def _as_typed(arguments: list[str]) -> str:
    """The helm command as a person would write it."""
    command = shlex.join(["helm", *arguments]).replace(str(CHART), "./helm")
    return f"$ {command}".replace(" --set ", " \\\n              --set ")


# -- the story


def _tell(cluster: Cluster) -> None:
    """From two healthy Pods to two healthy Pods.

    Raises:
        TestbedError: the Pod did not come back, or the survivor was touched.
    """
    workload = Workload(cluster, NAMESPACE)
    workload.create(SPREAD_OVER_LIVING_NODES)
    if not wait_until(lambda: workload.running_on() == {DOOMED, OTHER}, STARTED):
        raise TestbedError(f"the StatefulSet's two Pods did not run within {STARTED:.0f} s")
    _say("A StatefulSet of two, one Pod a node")
    _show_pods(cluster)
    story = _Story(cluster, workload)
    story.begin()
    if not wait_until(story.is_over, LIMIT, interval=0.1):
        raise TestbedError(story.failure())
    story.end()
    _show_pods(cluster)


class _Story:
    """What has been seen and told so far. `is_over` looks again and tells what is new."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload
        self._lost, self._survivor = workload.pod_on(DOOMED), workload.pod_on(OTHER)
        self._name: str = self._lost["metadata"]["name"]
        self._started = time.monotonic()
        self._is_tainted = False
        self._state = _state(self._lost)
        self._heard: list[str] = []

    def begin(self) -> None:
        """Cut the node off."""
        self._started = time.monotonic()
        self._cluster.node(DOOMED).cut()
        self._line("", f"{DOOMED} loses its network. {self._name} runs there.")

    def is_over(self) -> bool:
        """Whether the Pod is back. An answer that fails is asked for again."""
        pod = None
        with suppress(OSError, ApiError):
            pod = self._workload.pod(self._name)
            self._look_at_node()
            self._listen()  # later than the look at the Pod, so that a cause is told before what it brought about
            self._look_at_pod(pod)
        return pod is not None and _uid(pod) != _uid(self._lost) and is_ready(pod)

    def failure(self) -> str:
        """How far it came, in one line."""
        heard = self._heard[-1] if self._heard else "nothing"
        return f"{self._name} was not back within {LIMIT:.0f} s: it is {self._state}; asyncop's last word: {heard}"

    def end(self) -> None:
        """Say how it ended.

        Raises:
            TestbedError: the survivor was touched, or the replacement isn't where it should be.
        """
        took, name = time.monotonic() - self._started, self._survivor["metadata"]["name"]
        survivor = self._workload.pod(name)
        if survivor is None or _uid(survivor) != _uid(self._survivor) or is_terminating(survivor):
            raise TestbedError(f"{name}, which had nothing to do with it, was replaced")
        places = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self._workload.pods()}
        if places != {name: OTHER, self._name: OTHER}:
            raise TestbedError(f"both Pods should be on {OTHER}, but they are here: {places}")
        self._line("", f"{self._name} is back after {took:.0f} s, without a hand. {name} was left alone.")
        self._line("", f"Without asyncop, {self._name} would be Terminating until {DOOMED} is back, and run nowhere.")

    def _look_at_node(self) -> None:
        if not self._is_tainted and is_unreachable(self._cluster, DOOMED):
            self._is_tainted = True
            self._line("Kubernetes", f"{DOOMED} is tainted: node.kubernetes.io/unreachable:NoExecute")

    def _listen(self) -> None:
        for event in events_of(self._cluster, NAMESPACE)[len(self._heard) :]:
            self._heard.append(f"{event['reason']}: {event['note']}")
            self._line("asyncop", self._heard[-1])

    def _look_at_pod(self, pod: Json | None) -> None:
        state = _state(pod)
        if state != self._state:
            self._state = state
            comment = f"; only {DOOMED} could say when it has ended" if pod and is_terminating(pod) else ""
            self._line("Kubernetes", f"{self._name} is {state}{comment}")

    def _line(self, who: str, what: str) -> None:
        print(f"{time.monotonic() - self._started:+7.1f} s  {who:10}  {what}", flush=True)


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def _state(pod: Json | None) -> str:
    """In kubectl's words, as far as it has some."""
    if pod is None:
        return "gone"
    words = "Terminating" if is_terminating(pod) else pod["status"]["phase"]
    if words == "Running":
        words += " and Ready" if is_ready(pod) else ", not Ready,"
    place = f" on {pod['spec']['nodeName']}" if "nodeName" in pod["spec"] else ""
    return f"{words}{place} (uid {_uid(pod)[:8]})"


# -- output


def _show_pods(cluster: Cluster) -> None:
    columns = "NAME:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName,UID:.metadata.uid"
    print("\n$ kubectl get pods")
    print(cluster.kubectl("get", "pods", "--namespace", NAMESPACE, "-o", f"custom-columns={columns}"), flush=True)


def _show_around(cluster: Cluster) -> None:
    name, namespace = Installation.name, Installation.namespace
    print(f"""The cluster stays up. To look at it:
  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.bin}:$PATH
  kubectl get pods -A -o wide
  kubectl get events --field-selector reportingComponent=asyncop.dev/{name}
  kubectl logs -n {namespace} deployment/{name}
From this directory:
  python3 -m tests.testbed heal --dir {cluster.path} {DOOMED}    # the network is back
  python3 -m tests.testbed down --dir {cluster.path}          # remove everything""")


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
