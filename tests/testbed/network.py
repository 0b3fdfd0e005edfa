"""The machine's side of the nodes' network: a bridge, one link a node, and routes to the Pods.

    host (bridge atbS, 10.99.S.1) --- atbSnN === eth0 (10.99.S.1N, in the node) --- cni0 --- Pods (10.24S.N.0/24)

S is the slot: several clusters may run on one machine, each in its own slot. A slot is a symbolic link to the state
directory that holds it, made before anything else in the network is, so whatever is found can be traced to its owner.

All of it hangs on the bridge and on the nodes' namespaces: the host's firewall, its forwarding switch and its other
interfaces stay as they are.
"""

import fcntl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import TestbedError
from tests.testbed.processes import run_tool

SLOTS = range(8)
MAX_NODES = 9
_REGISTRY = Path("/run/asyncop-testbed")


@dataclass(frozen=True)
class Network:
    """The names and addresses of one slot."""

    slot: int

    @property
    def bridge(self) -> str:
        return f"atb{self.slot}"

    @property
    def host_address(self) -> str:
        """Where nodes and Pods reach the API server."""
        return f"10.99.{self.slot}.1"

    @property
    def cluster_cidr(self) -> str:
        return f"10.{240 + self.slot}.0.0/16"

    def pod_cidr(self, number: int) -> str:
        return f"10.{240 + self.slot}.{number}.0/24"

    def node_address(self, number: int) -> str:
        return f"10.99.{self.slot}.{10 + number}"

    def link(self, number: int) -> str:
        return f"{self.bridge}n{number}"

    def create(self) -> None:
        """Make the bridge, after removing one that a killed run left."""
        self.remove()
        _ip(f"link add {self.bridge} type bridge", f"addr add {self.host_address}/24 dev {self.bridge}")
        _ip(f"link set {self.bridge} up")
        # Pods of different nodes talk through the host; this lets it forward what comes from the bridge, only that.
        Path(f"/proc/sys/net/ipv4/conf/{self.bridge}/forwarding").write_text("1")

    def remove(self) -> None:
        """Remove the bridge and every link to it. Safe to repeat."""
        for number in range(1, MAX_NODES + 1):
            _remove_link(self.link(number))
        _remove_link(self.bridge)

    def attach(self, number: int, pid: int) -> None:
        """Connect the network namespace of a process as that node; the link must not exist."""
        link, address = self.link(number), self.node_address(number)
        # The same hardware address every time: the host's and the other nodes' ARP entries outlive a node's death.
        hardware = f"02:a5:00:00:{self.slot:02x}:{number:02x}"
        _ip(
            f"link add {link} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {link} master {self.bridge} up",
        )
        _ip(
            "link set lo up",
            f"addr add {address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self.host_address}",
            namespace_of=pid,
        )
        _ip(f"route replace {self.pod_cidr(number)} via {address}")

    def detach(self, number: int) -> None:
        """Remove a node's link, both ends. Safe to repeat."""
        _remove_link(self.link(number))

    def cut(self, number: int) -> None:
        """Take the node's carrier away. Safe to repeat, also for a node that isn't attached."""
        if _exists(self.link(number)):
            _ip(f"link set {self.link(number)} down")

    def mend(self, number: int) -> None:
        """Undo cut(). Safe to repeat."""
        _ip(f"link set {self.link(number)} up")


def claim_slot(holder: Path, reclaim: Callable[[Path], None]) -> Network:
    """Take a free slot for a state directory. A slot whose holder is dead is free, too, once that is removed.

    Args:
        holder: The state directory, whose record exists already.
        reclaim: Takes down the test bed at a path, or raises TestbedError if it is alive.

    Raises:
        TestbedError: every slot is held by a living test bed.
    """
    _REGISTRY.mkdir(mode=0o755, exist_ok=True)
    with (_REGISTRY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holders = []
        for slot in SLOTS:
            link = _REGISTRY / f"slot-{slot}"
            if link.is_symlink():
                try:
                    reclaim(link.readlink())
                except TestbedError:
                    holders.append(str(link.readlink()))
                    continue
                link.unlink(missing_ok=True)
            link.symlink_to(holder)
            return Network(slot)
    raise TestbedError(f"all {len(SLOTS)} networks are in use, by {', '.join(holders)}")


def network_of(holder: Path) -> Network | None:
    """Return the slot that a state directory holds, None if it holds none."""
    for slot in SLOTS:
        link = _REGISTRY / f"slot-{slot}"
        if link.is_symlink() and link.readlink() == holder:
            return Network(slot)
    return None


def release_slot(holder: Path) -> None:
    """Remove the network of a state directory, then let its slot go. Its processes must be gone. Safe to repeat."""
    network = network_of(holder)
    if network is not None:
        network.remove()
        (_REGISTRY / f"slot-{network.slot}").unlink(missing_ok=True)


def _exists(link: str) -> bool:
    return Path(f"/sys/class/net/{link}").exists()


def _remove_link(link: str) -> None:
    if _exists(link):
        _ip(f"link del {link}")


def _ip(*commands: str, namespace_of: int | None = None) -> None:
    """Run ip commands in one process, stopping at the first that fails."""
    enter = [] if namespace_of is None else ["nsenter", f"--net=/proc/{namespace_of}/ns/net"]
    run_tool([*enter, "ip", "-batch", "-"], stdin="\n".join(commands))
