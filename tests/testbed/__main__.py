"""The command line of the test bed: `python -m tests.testbed VERB`, from the checkout's root."""

import argparse
import sys
from pathlib import Path

from tests.testbed.binaries import ensure_binaries
from tests.testbed.cluster import Cluster
from tests.testbed.errors import TestbedError
from tests.testbed.network import MAX_NODES


def main() -> int:
    """Do one verb; a failure is one line on stderr and exit code 1."""
    arguments = _parser().parse_args()
    try:
        _VERBS[arguments.verb](arguments)
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description="A real Kubernetes for tests.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="compile the binaries into the cache; prints their directory")
    directory = argparse.ArgumentParser(add_help=False)
    directory.add_argument("--dir", type=Path, required=True, help="the state directory")
    up = verbs.add_parser("up", parents=[directory], help="start a cluster; prints the kubeconfig's path")
    up.add_argument(
        "--nodes", type=int, default=0, choices=range(MAX_NODES + 1), help="0: etcd and kube-apiserver only (default)"
    )
    up.add_argument("--audit", action="store_true", help="log every request to DIR/audit.log")
    image = verbs.add_parser("image", parents=[directory], help="import docker-archives into every node")
    image.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    for verb, text in _NODE_VERBS.items():
        verbs.add_parser(verb, parents=[directory], help=text).add_argument("node", metavar="NODE")
    verbs.add_parser("down", parents=[directory], help="remove every trace of it")
    verbs.add_parser("status", parents=[directory], help="show what runs")
    return parser


def _build(_: argparse.Namespace) -> None:
    print(ensure_binaries())


def _up(arguments: argparse.Namespace) -> None:
    print(Cluster(arguments.dir).up(nodes=arguments.nodes, audit=arguments.audit).kubeconfig)


def _image(arguments: argparse.Namespace) -> None:
    for archive in arguments.archives:
        Cluster(arguments.dir).load_image(archive)


def _kill(arguments: argparse.Namespace) -> None:
    Cluster(arguments.dir).node(arguments.node).kill()


def _cut(arguments: argparse.Namespace) -> None:
    Cluster(arguments.dir).node(arguments.node).cut()


def _heal(arguments: argparse.Namespace) -> None:
    Cluster(arguments.dir).node(arguments.node).heal()


def _down(arguments: argparse.Namespace) -> None:
    Cluster(arguments.dir).down()


def _status(arguments: argparse.Namespace) -> None:
    cluster = Cluster(arguments.dir)
    owner = cluster.state.owner
    print(f"owner: {f'process {owner.pid}' if owner else 'none, kept until down'}")
    for process in cluster.control_plane.processes:
        print(f"{process.name}: {'running' if process.is_running else 'not running'}")
    for node in cluster.nodes.values():
        running = [process.name for process in node.processes if process.is_running]
        print(f"{node.name}: {' '.join(running) or 'switched off'}")


_NODE_VERBS = {
    "kill": "a power cut: all processes of the node die",
    "cut": "take the node's network away; its processes live on",
    "heal": "network back, or the node switched on again; does not wait for Ready",
}
_VERBS = {
    "build": _build,
    "up": _up,
    "image": _image,
    "kill": _kill,
    "cut": _cut,
    "heal": _heal,
    "down": _down,
    "status": _status,
}

if __name__ == "__main__":
    sys.exit(main())
