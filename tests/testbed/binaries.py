"""Compile Kubernetes, etcd and helm from their Go modules, once, into a cache outside the checkout.

There is no download of ready-made binaries: the Go module proxy is the only source, and Go's checksum database vouches
for what it delivers. A cold build takes minutes, so the result is kept in a directory whose name is a digest of all
that shapes it (versions, flags, Go's version and target). Nothing in there is ever changed afterwards.

Safe to interrupt: a binary is built under another name and renamed when complete. Safe to run twice at once: a file
lock makes the second wait for the first.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.testbed.errors import MissingToolError, TestbedError

KUBERNETES, ETCD, HELM = "v1.36.3", "v3.7.3", "v4.3.1"


@dataclass(frozen=True)
class Source:
    """One Go module and the commands to build from it."""

    module: str
    version: str
    commands: dict[str, str]
    """Name of the binary -> its package."""
    variables: dict[str, str]
    """Linker variables that make the binary tell its version."""

    @property
    def flags(self) -> list[str]:
        """Without symbols and without the paths of this machine."""
        settings = " ".join(f"-X {name}={value}" for name, value in self.variables.items())
        return ["-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {settings}".strip()]


def _kubernetes() -> Source:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    prefix = "k8s.io/component-base/version.git"
    return Source(
        "k8s.io/kubernetes",
        KUBERNETES,
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        {f"{prefix}Version": KUBERNETES, f"{prefix}Major": major, f"{prefix}Minor": minor},
    )


SOURCES = (
    Source("go.etcd.io/etcd/server/v3", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}, {}),
    _kubernetes(),
    Source("helm.sh/helm/v4", HELM, {"helm": "helm.sh/helm/v4/cmd/helm"}, {}),
)
NAMES = tuple(name for source in SOURCES for name in source.commands)


def cache_root() -> Path:
    """`$ASYNCOP_TESTBED_CACHE`, else asyncop-testbed in the user's cache directory."""
    chosen = os.environ.get("ASYNCOP_TESTBED_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "asyncop-testbed"


def binaries_dir() -> Path:
    """Where the binaries for this Go and these versions are, or will be.

    Raises:
        MissingToolError: there is no Go.
    """
    return cache_root() / f"bin-{_digest()}"


def ensure_binaries() -> Path:
    """Build what is missing, telling the progress on stderr; return the directory. Touches no network if all is there.

    Raises:
        MissingToolError: there is no Go.
        TestbedError: a build failed; the compiler's words are on stderr.
    """
    target = binaries_dir()
    if _missing(target):
        target.mkdir(parents=True, exist_ok=True)
        with _lock(target / ".lock"):
            for left in target.glob("build-*"):
                shutil.rmtree(left)  # of a build that was killed
            for source in SOURCES:
                _build(source, target)
    return target


def compile_program(source: Path, target: Path) -> None:
    """Compile a Go file without dependencies into a static binary that appears whole or not at all."""
    scratch = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        _go("build", "-trimpath", "-ldflags=-s -w", "-o", str(scratch), str(source))
        scratch.rename(target)
    finally:
        scratch.unlink(missing_ok=True)


def architecture() -> str:
    """What Go compiles for, in the words that images use, too (amd64, arm64)."""
    return _go("env", "GOARCH").strip()


def _missing(target: Path) -> list[str]:
    return [name for name in NAMES if not (target / name).exists()]


def _go(*args: str, cwd: Path | None = None) -> str:
    # The user's flags and workspace must not change what is built. Without cgo the binaries are static, so that they
    # run in an empty image, too, and no C compiler is needed.
    env = {**os.environ, "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(["go", *args], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise MissingToolError("Go is not installed; the test bed compiles Kubernetes with it") from None
    if done.returncode:
        raise TestbedError(f"`go {' '.join(args[:2])}` failed with exit code {done.returncode}")
    return done.stdout


def _digest() -> str:
    shaping = ("GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "GOEXPERIMENT")
    go = json.loads(_go("env", "-json", *shaping))
    sources = [[source.module, source.version, source.commands, source.flags] for source in SOURCES]
    return hashlib.sha256(json.dumps([go, sources], sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        _acquire(file)
        yield


def _acquire(file: IO[str]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("another run is building; waiting for it")
        fcntl.flock(file, fcntl.LOCK_EX)


def _build(source: Source, target: Path) -> None:
    wanted = {name: package for name, package in source.commands.items() if not (target / name).exists()}
    if not wanted:
        return
    _say(f"compiling {', '.join(wanted)} {source.version} (minutes, if Go has not seen them before)")
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=target))
    try:
        (scratch / "go.mod").write_text(_go_mod(source))
        (scratch / "out").mkdir()
        # One call for all of a module's commands: they share most packages and the compiler keeps every core busy.
        _go("build", *source.flags, "-o", f"{scratch}/out/", *wanted.values(), cwd=scratch)
        for name, package in wanted.items():
            (scratch / "out" / _built_name(package)).rename(target / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _say(f"compiled {', '.join(wanted)} in {time.monotonic() - started:.0f} s")


def _built_name(package: str) -> str:
    """What `go build` calls a package's binary: its last element that isn't a major version."""
    return next(part for part in reversed(package.split("/")) if not re.fullmatch(r"v\d+", part))


def _go_mod(source: Source) -> str:
    """A module that does nothing but require the source; its own replace directives don't count, so they are redone.

    Kubernetes takes its k8s.io/* libraries from its own tree. They are published as v0.MINOR.PATCH of the same
    release, so each of these replacements becomes one to that version.
    """
    lines = ["module testbed", "go 1.26.0", f"require {source.module} {source.version}"]
    download = json.loads(_go("mod", "download", "-json", f"{source.module}@{source.version}"))
    replacements = json.loads(_go("mod", "edit", "-json", download["GoMod"])).get("Replace") or []
    for replacement in replacements:
        path, new = replacement["Old"]["Path"], replacement["New"]["Path"]
        if new.startswith("./staging/"):
            lines.append(f"replace {path} => {path} {source.version.replace('v1.', 'v0.', 1)}")
    return "\n".join(lines) + "\n"


def _say(message: str) -> None:
    print(f"testbed: {message}", file=sys.stderr, flush=True)
