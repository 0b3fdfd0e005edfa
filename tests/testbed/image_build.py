"""Build asyncop's image into a docker-archive, on a machine without a container engine.

Runs the very Dockerfile users build, by buildah with chroot isolation. Where the base named there can't be pulled, one
is made by debootstrap, laid out like it (`python3` and `pip` in /usr/local/bin, no byte code) and tagged with its name.
All state (buildah's storage, what was built last) lives in the test bed's cache, never in the machine's image store.

Promises: unchanged inputs and an intact archive cost a fraction of a second; an archive appears whole or not at all;
two builds at a time wait for each other, also for what a killed one still runs; no mounts stay behind. The archive
carries the project's version as a second tag, since that is what the chart asks for by default. Needs root. Loading
the archive somewhere is left to the caller.
"""

import argparse
import configparser
import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tests.testbed.binaries import cache_root
from tests.testbed.errors import TestbedError
from tests.testbed.packages import ensure_packages, require_root
from tests.testbed.processes import tool_environment

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_HERE = {"buildah": "buildah", "unshare": "util-linux"}
"""Program -> package, on the machine that builds."""
SUITE = "trixie"
BASE_PACKAGES = "python3,python3-pip,ca-certificates"
NOT_NEEDED = (
    *("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"),
    *("var/cache/apt", "var/lib/apt/lists"),
)
BASE_DOCKERFILE = """\
FROM scratch
ADD . /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""
UNSHARE = ("unshare", "--mount", "--propagation", "private")
"""Mounts made under this prefix are nobody else's and end with the command, however it ends."""
PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
STEP_LIMIT = 1800.0
"""Seconds for one outer command; a cold build on two cores takes a tenth of it."""
PULL_LIMIT = 60.0
"""Seconds to try the registry before a base is made here; a registry that can't be reached usually says so at once."""


@dataclasses.dataclass(frozen=True)
class Layer:
    digest: str
    unpacked_bytes: int
    compressed_bytes: int


def default_archive() -> Path:
    """Where `make image` puts it, so that tests find it built."""
    return cache_root() / "asyncop.tar"


def build(tag: str, output: Path, base: str = "auto") -> str:
    """Make `output` hold the image of the current checkout under `tag`; returns a report of sizes for people.

    Args:
        tag: as a Pod would name it, e.g. `asyncop:dev`.
        output: replaced atomically, and only when something changed.
        base: `registry` pulls the base, `debootstrap` makes it, `auto` tries both in this order.

    Raises:
        MissingToolError: no root, or a tool that could not be installed here.
        TestbedError: a step failed; its log is named.
    """
    home = cache_root() / "image"
    home.mkdir(parents=True, exist_ok=True)
    tags = [qualified(tag), f"{qualified(tag).rpartition(':')[0]}:{version()}"]
    key = inputs_key(tags, base)
    record = home / f"{key}.json"
    with locked(home / "lock") as lock:
        if report := still_good(record, output, tags):
            return f"{output} is up to date\n{report}"
        require_root("building the image")
        ensure_packages(PACKAGES_HERE if base == "registry" else {**PACKAGES_HERE, "debootstrap": "debootstrap"})
        for left in home.glob("build-*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix="build-", dir=home) as scratch:
            store = Store(home, Path(scratch), lock)
            store.ensure_base(base_name(), base)
            store.build(tags)
            archive = store.export(tags[0])
            report = describe(archive, base_layers=store.layer_count(base_name()), known=home / "layers.json")
            image = read_manifest(archive)["Config"]
            output.parent.mkdir(parents=True, exist_ok=True)
            # Next to the target first: a rename is atomic within one file system only.
            fresh = output.with_name(f".{output.name}.new")
            name_archive(archive, tags, fresh)
            fresh.replace(output)
        # Somebody may have edited a file meanwhile: then nobody knows which state was built.
        if inputs_key(tags, base) == key:
            record.write_text(json.dumps({"image": image, "report": report}))
    return report


class Store:
    """buildah with a storage of its own; one instance a build, under the lock."""

    def __init__(self, home: Path, scratch: Path, lock: IO[str]) -> None:
        self._home = home
        self._scratch = scratch
        # Each command holds the lock too: should this process be killed, the next build waits for what it left running.
        self._locks = (lock.fileno(),)
        self._log = home / "build.log"
        self._log.write_text("")
        # overlay builds several times quicker, but not on top of another overlay (a build within a container).
        self._driver = "overlay"
        if self._try("info", limit=60):
            self._driver = "vfs"
        self._buildah("rm", "--all")  # what a killed build left

    def ensure_base(self, name: str, source: str) -> None:
        """Have an image called `name`: pulled, or made here once for each recipe."""
        made_here = f"localhost/asyncop-testbed/base:{recipe_key()}"
        if source != "registry" and not self._try("inspect", "--type", "image", made_here):
            self._buildah("tag", made_here, name)
            return
        if source != "debootstrap":
            say(f"pulling {name}")
            problem = self._try("pull", "-q", name, limit=PULL_LIMIT if source == "auto" else STEP_LIMIT)
            if not problem:
                return
            if source == "registry":
                raise TestbedError(f"could not pull {name}: {problem}")
            say(f"could not pull {name}; making a base of Debian {SUITE} instead (once, about a minute)")
        self._make_base(made_here)
        self._buildah("tag", made_here, name)

    def build(self, tags: list[str]) -> None:
        """Build the checkout's image; unchanged steps come from the storage."""
        say("building " + ", ".join(tags))
        secrets = pip_secrets(self._scratch)
        common = ["--isolation", "chroot", "--layers", "--pull=never", *secrets]
        self._buildah("bud", *common, *[part for tag in tags for part in ("-t", tag)], str(ROOT))
        # A name keeps the dependencies, which no final image is made from, out of the pruning.
        kept = "localhost/asyncop-testbed/dependencies"
        self._buildah("bud", *common, "--target", "dependencies", "-t", kept, str(ROOT))
        self._buildah("rmi", "--prune")

    def export(self, tag: str) -> Path:
        archive = self._scratch / "image.tar"
        self._buildah("push", "-q", tag, f"docker-archive:{archive}:{tag}")
        return archive

    def layer_count(self, name: str) -> int:
        image = json.loads(self._buildah("inspect", "--type", "image", name))
        return len(image["OCIv1"]["rootfs"]["diff_ids"])

    def _make_base(self, name: str) -> None:
        tree = self._scratch / "base"
        self._run([*UNSHARE, "debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(tree)])
        for path in NOT_NEEDED:
            shutil.rmtree(tree / path, ignore_errors=True)
        for compiled in list((tree / "usr/lib").glob("python3*/**/__pycache__")):
            shutil.rmtree(compiled)
        for link, target in {"python": "python3", "python3": "python3", "pip": "pip3", "pip3": "pip3"}.items():
            (tree / "usr/local/bin" / link).symlink_to(f"/usr/bin/{target}")
        dockerfile = self._scratch / "base.Dockerfile"
        dockerfile.write_text(BASE_DOCKERFILE)
        self._buildah("bud", "--isolation", "chroot", "-t", name, "-f", str(dockerfile), str(tree))

    def _buildah(self, *args: str) -> str:
        return self._run(self._command(*args))

    def _try(self, *args: str, limit: float = STEP_LIMIT) -> str:
        """Empty when the command worked, else why it didn't."""
        try:
            done = self._start(self._command(*args), subprocess.PIPE, limit)
        except subprocess.TimeoutExpired:
            return f"no end after {limit:.0f} s"
        return (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""

    def _start(self, command: list[str], errors: int | IO[str], limit: float) -> subprocess.CompletedProcess[str]:
        # The user's proxies count here: this is the one part of the test bed that speaks with the world.
        env = {**os.environ, "PATH": tool_environment()["PATH"]}
        return subprocess.run(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=limit,
            check=False,
            pass_fds=self._locks,
        )

    def _command(self, *args: str) -> list[str]:
        storage = ["--root", str(self._home / self._driver), "--runroot", str(self._scratch / "run")]
        return [*UNSHARE, "buildah", *storage, "--storage-driver", self._driver, *args]

    def _run(self, command: list[str]) -> str:
        with self._log.open("a") as log:
            try:
                done = self._start(command, log, STEP_LIMIT)
            except subprocess.TimeoutExpired:
                raise TestbedError(f"no end after {STEP_LIMIT:.0f} s: {' '.join(command)}; log: {self._log}") from None
            log.write(done.stdout)
        if done.returncode:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise TestbedError(f"{tail}\nfailed ({done.returncode}): {' '.join(command)}; log: {self._log}")
        return done.stdout


def base_name() -> str:
    """The name in FROM."""
    found = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if not found:
        raise TestbedError("Dockerfile has no line `ARG BASE=…`")
    return found[1]


def version() -> str:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def qualified(tag: str) -> str:
    """The name as a container runtime completes it: `asyncop:dev` is `docker.io/library/asyncop:dev`."""
    name, colon, label = tag.rpartition(":")
    if not colon or "/" in label:
        name, label = tag, "latest"
    host, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif host != "localhost" and not set(".:") & set(host):
        name = f"docker.io/{name}"
    return f"{name}:{label}"


def recipe_key() -> str:
    recipe = json.dumps([SUITE, BASE_PACKAGES, NOT_NEEDED, BASE_DOCKERFILE])
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def inputs_key(tags: list[str], base: str) -> str:
    """Names everything that decides what the image is, but for what a registry would answer today."""
    digest = hashlib.sha256(json.dumps([tags, base, base_name()]).encode())
    for path in [Path(__file__), ROOT / "Dockerfile", ROOT / ".dockerignore", *context_files()]:
        digest.update(f"{path.name}\0{path.stat().st_mode & 0o111:o}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def context_files() -> list[Path]:
    """What .dockerignore, an allow-list, lets into the build."""
    allowed = [line[1:].strip() for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    found: list[Path] = []
    for name in allowed:
        top = ROOT / name
        found += [p for p in top.rglob("*") if p.is_file() and "__pycache__" not in p.parts] if top.is_dir() else [top]
    return sorted(found)


def still_good(record: Path, output: Path, tags: list[str]) -> str:
    """The report of the build that made `output`, if it was made from these inputs; else empty."""
    with contextlib.suppress(OSError, ValueError, KeyError, tarfile.TarError):
        known = json.loads(record.read_text())
        manifest = read_manifest(output)
        if manifest["Config"] == known["image"] and set(tags) <= set(manifest["RepoTags"]):
            return str(known["report"])
    return ""


def read_manifest(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        if member is None:
            raise tarfile.TarError("manifest.json is no file")
        manifest: dict[str, Any] = json.load(member)[0]
    return manifest


def name_archive(source: Path, tags: list[str], target: Path) -> None:
    """Copy an archive under other names: buildah writes one only, of whatever spelling its version prefers."""
    manifest = json.dumps([{**read_manifest(source), "RepoTags": tags}]).encode()
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            if member.name == "manifest.json":
                member.size = len(manifest)
                new.addfile(member, io.BytesIO(manifest))
            elif member.name != "repositories":  # the same names once more, in the format before manifest.json
                new.addfile(member, old.extractfile(member) if member.isreg() else None)


def describe(archive: Path, base_layers: int, known: Path) -> str:
    """Sizes of the image and of what it adds to its base. `known` saves compressing the same layer again."""
    sizes: dict[str, int] = json.loads(known.read_text()) if known.exists() else {}
    layers: list[Layer] = []
    with tarfile.open(archive) as tar:
        for name in read_manifest(archive)["Layers"]:
            if name not in sizes:
                sizes[name] = gzip_size(tar, name)
            layers.append(Layer(name, tar.getmember(name).size, sizes[name]))
    known.write_text(json.dumps(sizes))
    base, added = layers[:base_layers], layers[base_layers:]
    lines = [f"{'':10} {'unpacked':>10} {'compressed':>10}"]
    for title, part in {"image": layers, "base": base, "asyncop": added, "top layer": added[-1:]}.items():
        unpacked, compressed = sum(x.unpacked_bytes for x in part), sum(x.compressed_bytes for x in part)
        lines.append(f"{title:10} {unpacked / 1e6:7.1f} MB {compressed / 1e6:7.1f} MB")
    return "\n".join(lines)


def gzip_size(tar: tarfile.TarFile, name: str) -> int:
    source = tar.extractfile(name)
    if source is None:
        raise tarfile.TarError(f"{name} is no file")
    press, size = zlib.compressobj(6), 0
    while chunk := source.read(1 << 20):
        size += len(press.compress(chunk))
    return size + len(press.flush())


def pip_secrets(scratch: Path) -> list[str]:
    """This machine's way to a package index, as the build secrets that the Dockerfile mounts; nothing of it stays."""
    settings = pip_settings()
    lines = ["[global]"] + [f"{key} = {value}" for key, value in settings.items() if key in PIP_KEYS]
    flags: list[str] = []
    authority = settings.get("cert") or os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    if authority and Path(authority).is_file():
        lines.append("cert = /run/secrets/ca.crt")
        flags += ["--secret", f"id=ca.crt,src={authority}"]
    conf = scratch / "pip.conf"
    conf.write_text("\n".join(lines) + "\n")
    return [*flags, "--secret", f"id=pip.conf,src={conf}"]


def pip_settings() -> dict[str, str]:
    """What pip itself would read, from the least to the most specific: its files, then its environment."""
    parser = configparser.RawConfigParser()
    files = ["/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")]
    parser.read([os.path.expanduser(name) for name in files if name])
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            settings.update({key.replace("_", "-"): value.replace("\n", " ") for key, value in parser.items(section)})
    for key, value in os.environ.items():
        if key.startswith("PIP_") and value:
            settings[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """One build a cache at a time; the kernel frees the lock of a process that was killed."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def say(message: str) -> None:
    print(f"image: {message}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Command line: 0 the archive is there, 1 it isn't and why was said."""
    parser = argparse.ArgumentParser(prog="image_build", description="Build asyncop's image into a docker-archive.")
    parser.add_argument("--tag", required=True, help="name of the image, e.g. asyncop:dev")
    parser.add_argument("--output", required=True, type=Path, help="archive for `docker load`, `ctr images import`")
    parser.add_argument("--base", choices=["auto", "registry", "debootstrap"], default="auto", help="see build()")
    args = parser.parse_args(argv)
    started = time.monotonic()
    try:
        print(build(args.tag, args.output, args.base))
    except TestbedError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    say(f"{qualified(args.tag)} is in {args.output} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
