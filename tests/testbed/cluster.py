"""A whole test bed: bring it up, take it down, clean up after one whose owner died."""

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from tests.testbed.api import Api, ApiError, Json
from tests.testbed.binaries import ensure_binaries
from tests.testbed.control_plane import ControlPlane, Timings
from tests.testbed.errors import InUseError, TestbedError
from tests.testbed.images import pause_archive
from tests.testbed.network import claim_slot, network_of, release_slot
from tests.testbed.node import Node
from tests.testbed.packages import NODE_PACKAGES, PLANE_PACKAGES, ensure_packages, require_root
from tests.testbed.processes import Identity, end_marked, run_tool, wait_until
from tests.testbed.state import State, StateDir

_CONTROLLED_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""The node controller removes these when the node is well; all others are left to whoever put them there."""


class Cluster:
    """A control plane and its nodes (maybe none), by the state directory they live in."""

    def __init__(self, path: Path) -> None:
        self._dir = StateDir(path)
        self.path = self._dir.path

    @property
    def state(self) -> State:
        """As recorded.

        Raises:
            TestbedError: there is none.
        """
        state = self._dir.read()
        if state is None:
            raise TestbedError(f"there is no test bed at {self.path}")
        return state

    @property
    def bin(self) -> Path:
        """The directory with kubectl, helm and the rest."""
        return Path(self.state.binaries)

    @property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(self.path, self.bin)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; it holds its certificates inside, so it may be copied elsewhere."""
        return self.control_plane.kubeconfig

    @property
    def audit_log(self) -> Path:
        """One JSON line a request (level Metadata, when its answer is out), if it was brought up with `audit`."""
        return self.control_plane.audit_log

    @property
    def api(self) -> Api:
        """A plain client for the administrator; the product isn't tested with itself."""
        return self.control_plane.api

    def up(
        self,
        *,
        nodes: int = 0,
        owner: Identity | None = None,
        audit: bool = False,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> Self:
        """Start everything and return when the API server and every Node are ready.

        What a dead run left in the directory is removed first. On any failure, Ctrl-C included, what was started so
        far is removed before the error goes on.

        Raises:
            InUseError: the directory has a living owner.
            MissingToolError: this machine cannot do it.
            TestbedError: something did not come up.
        """
        if nodes:
            require_root("a cluster with nodes")
        ensure_packages(NODE_PACKAGES if nodes else PLANE_PACKAGES)
        binaries = ensure_binaries()
        self._dir.check_abandoned()
        with self._dir.locked():
            self._dir.check_abandoned()  # what counts is how it is now that nobody else may change it
            self._clear()
            # Until all is up we own it, whoever owns it then: if we are killed now, the next run finds a dead owner.
            state = State(Identity.of(os.getpid()), False, nodes, str(binaries))
            self._dir.write(state)
            try:
                self._start(state, audit=audit, timings=timings)
                self._dir.write(replace(self.state, owner=owner, is_complete=True))
            except BaseException:
                self._clear()
                self._dir.delete()
                raise
        return self

    def keep(self) -> None:
        """Give up the owner: it stays until `down`, whatever becomes of this process."""
        with self._dir.locked():
            self._dir.write(replace(self.state, owner=None))

    def down(self) -> None:
        """Remove every trace, whoever owns it; nothing happens if there is nothing."""
        if not self.path.is_dir() or (self._dir.read() is None and not self._dir.is_empty):
            return
        with self._dir.locked():
            self._clear()
            self._dir.delete()

    @property
    def nodes(self) -> dict[str, Node]:
        """By name (node1, node2 and so on); empty for a bare control plane."""
        network, state = network_of(self.path), self._dir.read()
        if network is None or state is None:
            return {}
        numbers = range(1, state.nodes + 1)
        nodes = [Node(number, self.path, network, Path(state.binaries)) for number in numbers]
        return {node.name: node for node in nodes}

    def node(self, name: str) -> Node:
        """Look a node up for somebody who typed its name.

        Raises:
            TestbedError: there is no such node.
        """
        try:
            return self.nodes[name]
        except KeyError:
            raise TestbedError(f"there is no {name} here; there are: {', '.join(self.nodes) or 'no nodes'}") from None

    def load_image(self, archive: Path) -> None:
        """Import a docker-archive into every node; one that is switched off gets it when it comes back."""
        target = self.path / "images" / archive.name
        scratch = target.with_suffix(".new")
        shutil.copyfile(archive, scratch)
        scratch.rename(target)
        _at_once(lambda node: node.import_image(target), [node for node in self.nodes.values() if node.is_running])

    def heal(self, timeout: float = 90) -> None:
        """Make every node whole, and wait until the cluster sees it so: registered, Ready, schedulable, untainted.

        Raises:
            TestbedError: some Node wasn't in time.
        """
        registered = {item["metadata"]["name"] for item in self._node_objects()}
        for node in self.nodes.values():
            if node.name not in registered:
                node.kill()  # a kubelet registers its node when it starts, and never again
        _at_once(Node.heal, self.nodes.values())
        self.wait_nodes_ready(timeout)

    def wait_nodes_ready(self, timeout: float = 90) -> None:
        """Wait until every Node is Ready. Taints and cordons that somebody put there by hand are removed.

        Raises:
            TestbedError: it took longer; the end of the kubelets' logs is in the message.
        """
        waiting = dict(self.nodes)

        def are_ready() -> bool:
            with suppress(OSError, ApiError):  # a lost race for a Node, or no answer yet: look again
                for item in self._node_objects():
                    if _is_ready(item):
                        waiting.pop(item["metadata"]["name"], None)
                    else:
                        self._untaint(item)
            return not waiting

        if not wait_until(are_ready, timeout, interval=0.1):
            logs = [f"{node.name}:\n{node.process('kubelet').log_tail()}" for node in waiting.values()]
            raise TestbedError("\n".join([f"not Ready after {timeout:.0f} s", *logs]))

    def _node_objects(self) -> list[Json]:
        items: list[Json] = self.api.call("GET", "/api/v1/nodes")["items"]
        return items

    def _untaint(self, node: Json) -> None:
        """Remove what the node controller doesn't look after itself."""
        taints = node["spec"].get("taints", ())
        kept = [taint for taint in taints if taint["key"] in _CONTROLLED_TAINTS]
        if len(kept) < len(taints):
            name, version = node["metadata"]["name"], node["metadata"]["resourceVersion"]
            spec = {"taints": kept or None, "unschedulable": None}
            patch = {"metadata": {"resourceVersion": version}, "spec": spec}
            self.api.call("PATCH", f"/api/v1/nodes/{name}", patch)

    def _start(self, state: State, *, audit: bool, timings: Timings) -> None:
        if not state.nodes:
            self.control_plane.start(controllers=False, audit=audit, timings=timings)
            return
        network = claim_slot(self.path, _reclaim)
        network.create()
        (self.path / "images").mkdir()
        shutil.copyfile(pause_archive(), self.path / "images" / "pause.tar")
        plane = ControlPlane(self.path, Path(state.binaries), network.host_address)
        plane.start(controllers=True, audit=audit, timings=timings)
        for node in self.nodes.values():
            node.prepare(plane.pki, plane.server, timings)
        _at_once(Node.boot, self.nodes.values())
        self.wait_nodes_ready()

    def _clear(self) -> None:
        """Remove everything but the lock; what is recorded goes after what it records."""
        end_marked(self.path)
        for node in self.nodes.values():
            node.remove_cgroups()
        release_slot(self.path)
        self._dir.clear()

    def kubectl(self, *args: str | Path, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl as the administrator and return what it printed.

        Raises:
            TestbedError: it failed; its own message is inside.
        """
        return self.run("kubectl", *args, stdin=stdin, timeout=timeout)

    def run(self, tool: str, *args: str | Path, stdin: str | None = None, timeout: float = 60) -> str:
        """Run one of the binaries (kubectl, helm) against this cluster; see kubectl()."""
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            # What they remember of a cluster goes with it, and the user's own settings don't count.
            "KUBECACHEDIR": str(self.path / "cache" / "kubectl"),
            "HELM_CACHE_HOME": str(self.path / "cache" / "helm"),
            "HELM_CONFIG_HOME": str(self.path / "cache" / "helm-config"),
            "HELM_DATA_HOME": str(self.path / "cache" / "helm-data"),
        }
        return run_tool([self.bin / tool, *args], stdin=stdin, timeout=timeout, **environment)


def _is_ready(node: Json) -> bool:
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _at_once(action: Callable[[Node], None], nodes: Iterable[Node]) -> None:
    """Do it to all nodes in parallel; the first error is raised when all have ended."""
    nodes = list(nodes)
    with ThreadPoolExecutor(max_workers=len(nodes) or 1) as pool:
        list(pool.map(action, nodes))


def _reclaim(path: Path) -> None:
    """Take down the holder of a slot if it is a ruin.

    Raises:
        InUseError: it is alive.
    """
    StateDir(path).check_abandoned()
    Cluster(path).down()
    end_marked(path)  # of a directory that somebody deleted by hand


def clear_ruins(root: Path) -> None:
    """Take down every test bed right below the directory whose owner is dead; leave everything else alone."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and _is_ruin(path):
            with suppress(InUseError):  # another run is at it
                Cluster(path).down()


def _is_ruin(path: Path) -> bool:
    try:
        StateDir(path).check_abandoned()
    except TestbedError:
        return False
    return True
