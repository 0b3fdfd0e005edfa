"""One node: a machine of its own as far as its programs can tell, that can die, be cut off and come back.

It has its own process, network and mount namespaces. Process 1 of them is `node_init.py`, so killing that one process
is what a power cut is to a machine: containerd, shims, containers and kubelet are gone at the same instant, with the
node's mounts and Pod networks, and nothing can be left over. What a disk keeps stays in the node's directory:
containerd's images, the kubelet's files.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.testbed import node_init
from tests.testbed.control_plane import Timings
from tests.testbed.errors import TestbedError
from tests.testbed.images import PAUSE
from tests.testbed.network import Network
from tests.testbed.pki import Pki
from tests.testbed.processes import Identity, Process, end, run_tool, wait_until

_CGROUPS = Path("/sys/fs/cgroup")
_TIMEOUT = 60.0
_CGROUP_TIMEOUT = 10.0


@dataclass(frozen=True)
class Node:
    """A node by its number, from 1; its Kubernetes name is `nodeN`."""

    number: int
    state_dir: Path
    network: Network
    binaries: Path

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def directory(self) -> Path:
        return self.state_dir / "nodes" / self.name

    @property
    def processes(self) -> tuple[Process, ...]:
        """In the order in which they start."""
        return tuple(self.process(name) for name in ("init", "containerd", "kubelet", "kube-proxy"))

    @property
    def is_running(self) -> bool:
        """Whether it is switched on; it may be cut off all the same."""
        init = self._init
        return init is not None and init.is_alive

    @property
    def socket(self) -> Path:
        """Of containerd, for `ctr --address`; usable from outside of the node."""
        return self.directory / "containerd.sock"

    def prepare(self, pki: Pki, server: str, timings: Timings) -> None:
        """Make identities and configuration; they outlive the node's deaths."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for program, user, group in (
            ("kubelet", f"system:node:{self.name}", "system:nodes"),
            ("kube-proxy", "system:kube-proxy", None),
        ):
            name = f"{self.name}-{program}"
            pki.issue(name, user, group)
            pki.write_kubeconfig(self.directory / f"{program}.kubeconfig", name, server)
        self._write("cni/10-bridge.conflist", json.dumps(self._cni()))
        self._write("containerd.toml", self._containerd())
        self._write("kubelet.json", json.dumps(self._kubelet(pki, timings)))

    def boot(self) -> None:
        """Switch it on and return when its programs run; the Node object becomes Ready some seconds later.

        Raises:
            TestbedError: something did not come up; the end of its log is in the message.
        """
        pid = self._start_init()
        self.network.detach(self.number)
        self.network.attach(self.number, pid)
        self._start("containerd", "containerd", "--config", self.directory / "containerd.toml")
        self._wait("containerd", self._answers)
        for archive in sorted((self.state_dir / "images").glob("*.tar")):
            self.import_image(archive)
        self._start(
            "kubelet",
            self.binaries / "kubelet",
            f"--config={self.directory}/kubelet.json",
            f"--kubeconfig={self.directory}/kubelet.kubeconfig",
            f"--root-dir={self.directory}/kubelet",
            f"--cert-dir={self.directory}/kubelet-pki",
            f"--hostname-override={self.name}",
            f"--node-ip={self.network.node_address(self.number)}",
        )
        self._start(
            "kube-proxy",
            self.binaries / "kube-proxy",
            f"--kubeconfig={self.directory}/kube-proxy.kubeconfig",
            f"--hostname-override={self.name}",
            f"--cluster-cidr={self.network.cluster_cidr}",
            "--proxy-mode=iptables",
            "--conntrack-max-per-core=0",
        )

    def kill(self) -> None:
        """A power cut: all its processes are gone on return, without a last word to anybody. Safe to repeat."""
        self.network.cut(self.number)  # first, or the dying sockets would say goodbye
        init = self._init
        if init is not None:
            end([init])  # returns when the kernel has ended everything inside
        for process in reversed(self.processes):
            process.stop(grace=0)
        self.network.detach(self.number)
        self.remove_cgroups()

    def cut(self) -> None:
        """Take away the network; its processes live on and don't know why nobody answers. Safe to repeat."""
        self.network.cut(self.number)

    def heal(self) -> None:
        """Make it whole again: network back, or switched on after a kill. Safe to repeat."""
        if self.is_running:
            self.network.mend(self.number)
        else:
            self.kill()  # what a broken-off kill left
            self.boot()

    def import_image(self, archive: Path) -> None:
        """Load a docker-archive, unless the node has this very one already."""
        stamp = self.directory / "imported" / archive.name
        version = str(archive.stat().st_mtime_ns)
        if stamp.exists() and stamp.read_text() == version:
            return
        self._ctr("images", "import", "--no-unpack", str(archive))
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(version)

    def image_tags(self) -> list[str]:
        """The names of what it could run without pulling."""
        return self._ctr("images", "list", "--quiet").split()

    def running_containers(self) -> set[str]:
        """The ids of those whose process lives, the Pods' sandboxes included; none on a node that is switched off."""
        if not self.is_running:
            return set()
        rows = [line.split() for line in self._ctr("tasks", "list").splitlines()[1:]]
        return {container for container, _, status in rows if status == "RUNNING"}

    def unsent_bytes(self, container: str) -> int:
        """How much of what a container's Pod has sent is still on its way, dead connections included."""
        (processes,) = [
            group for one in _hierarchies() if (group := one / "k8s.io" / container / "cgroup.procs").exists()
        ][:1]
        pid = processes.read_text().split()[0]
        sockets = run_tool(["nsenter", f"--target={pid}", "--net", "ss", "--no-header", "--tcp", "--numeric"])
        return sum(int(line.split()[2]) for line in sockets.splitlines())

    def kill_container(self, container: str) -> None:
        """`kill -9` of its first process; the kubelet starts a new container in its place."""
        self._ctr("tasks", "kill", "--signal", "SIGKILL", container)

    def remove_cgroups(self) -> None:
        """Remove the control groups of its dead containers, which outlive a power cut of ours. Safe to repeat.

        Their parent, k8s.io, stays: it may be anybody's.
        """
        known = self.directory / "containerd" / "io.containerd.grpc.v1.cri"
        containers = {path.name for kind in ("sandboxes", "containers") for path in known.glob(f"{kind}/*")}
        for hierarchy in _hierarchies():
            for group in hierarchy.glob("k8s.io/*"):
                # The kernel needs a moment to forget the dead in it.
                if group.name in containers and not wait_until(partial(_is_removed, group), _CGROUP_TIMEOUT):
                    raise TestbedError(f"the control group {group} is still in use")

    @property
    def _init(self) -> Identity | None:
        try:
            return Identity(**json.loads((self.directory / "init.json").read_text()))
        except FileNotFoundError:
            return None

    def process(self, name: str) -> Process:
        """One of its programs: init, containerd, kubelet or kube-proxy."""
        return Process(self.state_dir, name, f"nodes/{self.name}")

    def _start_init(self) -> int:
        (self.directory / "init.json").unlink(missing_ok=True)
        for place in node_init.PRIVATE:
            Path(place).mkdir(parents=True, exist_ok=True)
        self.process("init").start(
            *("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child=SIGKILL"),
            *(sys.executable, node_init.__file__, self.directory),
        )
        self._wait("init", lambda: self.is_running)
        init = self._init
        if init is None:
            raise TestbedError(f"{self.name} vanished while it was starting")
        return init.pid

    def _start(self, name: str, *argv: str | Path) -> None:
        """Start a program inside. It sees the machine's /sys, where the control groups are."""
        init = self._init
        if init is None:
            raise TestbedError(f"{self.name} is not running")
        self.process(name).start("nsenter", f"--target={init.pid}", "--mount", "--net", "--pid", *argv)

    def _wait(self, name: str, condition: Callable[[], bool]) -> None:
        process = self.process(name)

        def is_settled() -> bool:
            return condition() or not process.is_running

        if not wait_until(is_settled, _TIMEOUT) or not process.is_running:
            raise TestbedError(f"{name} of {self.name} did not come up:\n{process.log_tail()}")

    def _answers(self) -> bool:
        try:
            self._ctr("version")
        except TestbedError:
            return False
        return True

    def _ctr(self, *args: str) -> str:
        return run_tool(["ctr", "--address", self.socket, "--namespace", "k8s.io", *args], timeout=300)

    def _write(self, name: str, text: str) -> None:
        target = self.directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _cni(self) -> dict[str, object]:
        ranges = [[{"subnet": self.network.pod_cidr(self.number)}]]
        addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge, {"type": "loopback"}]}

    def _containerd(self) -> str:
        # restrict_oom_score_adj: a machine without CAP_SYS_RESOURCE may not lower a score.
        return f"""version = 2
root = "{self.directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""

    def _kubelet(self, pki: Pki, timings: Timings) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.network.node_address(self.number),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(pki.ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            # One group a container and none above it: no Pod or node limits, for the nodes share the machine.
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            # The machine's disk is nobody's business here.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "maxPods": 200,
            "nodeLeaseDurationSeconds": timings.lease_duration,
            "nodeStatusUpdateFrequency": f"{timings.status_update}s",
            "podLogsDir": f"{self.directory}/podlogs",
            "resolvConf": "",
        }


def _hierarchies() -> list[Path]:
    """Where control groups are: version 2 has one tree, version 1 many."""
    return [_CGROUPS, *_CGROUPS.iterdir()]


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
