"""The Debian packages that a test bed needs, installed only where they are missing.

What counts is whether the program is there, not how it came: a machine that has everything is left alone and needs
neither the network nor apt. The lists of packages are only refreshed when an installation fails with those there are.
"""

import os
import shutil
import subprocess
import sys

from tests.testbed.errors import MissingToolError, TestbedError
from tests.testbed.processes import tool_environment

PLANE_PACKAGES = {"openssl": "openssl"}
"""Program -> package, for a control plane."""

NODE_PACKAGES = {
    **PLANE_PACKAGES,
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Program -> package, for a cluster with nodes besides."""


def require_root(purpose: str) -> None:
    """Check that we may do what only root may.

    Raises:
        MissingToolError: we are somebody else.
    """
    if os.geteuid() != 0:
        raise MissingToolError(f"{purpose} needs root")


def ensure_packages(needed: dict[str, str]) -> None:
    """Install what is missing; needs root only then.

    Raises:
        MissingToolError: something is missing and can't be installed on this machine.
        TestbedError: apt failed; its own words are on stderr.
    """
    packages = sorted({package for program, package in needed.items() if not _is_there(program)})
    if not packages:
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise MissingToolError(f"these Debian packages are not installed: {' '.join(packages)}")
    print(f"testbed: installing {' '.join(packages)}", file=sys.stderr, flush=True)
    if not _install(packages):
        _apt("update", "-qq")
        if not _install(packages):
            raise TestbedError(f"apt-get could not install {' '.join(packages)}")


def _is_there(program: str) -> bool:
    return shutil.which(program, path=tool_environment()["PATH"]) is not None


def _install(packages: list[str]) -> bool:
    return _apt("install", "-y", "-qq", "--no-install-recommends", *packages)


def _apt(*args: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Another apt may be at work on a machine that has just started.
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *args]
    return subprocess.run(argv, env=env, stdout=sys.stderr, check=False).returncode == 0
