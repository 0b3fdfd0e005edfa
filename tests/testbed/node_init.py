"""Process 1 of a node, run by path inside the node's new namespaces: `node_init.py DIRECTORY`.

Gives the node what a machine has of its own, tells the outside how to find it, then does the one duty of a process 1:
reaping orphans. When it is killed the kernel kills everything else in the node with it.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PRIVATE = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
"""Where the node's programs insist on writing: empty and in memory in each node, gone with it as after a power cut."""

SETTINGS = {
    "ip_forward": "1",
    # Give a silent connection up after 3 s, not 15 min: a kubelet whose node was cut off would otherwise still sit on
    # its old connections, resending ever less often, for half a minute after the network is back.
    "tcp_retries2": "3",
}


def main(directory: Path) -> None:
    """Never returns; the node is usable when `init.json` is there."""
    # /proc is still the machine's, so it shows our identity as the outside sees it, not as pid 1.
    pid = int(os.readlink("/proc/self"))
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    _mount("proc", "/proc")
    for place in PRIVATE:
        _mount("tmpfs", place)
    for setting, value in SETTINGS.items():
        (Path("/proc/sys/net/ipv4") / setting).write_text(value)
    scratch = directory / "init.json.new"
    scratch.write_text(json.dumps({"pid": pid, "started": started}))
    scratch.replace(directory / "init.json")
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _mount(kind: str, place: str) -> None:
    subprocess.run(["mount", "-t", kind, kind, place], check=True)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
