"""The image that `make image` builds: what is in it, and that it runs with no more than the chart allows it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import image_build
from tests.testbed.errors import MissingToolError
from tests.testbed.fixtures import give_up

# Building and unpacking is the fixture's work and takes a minute on a machine that has built nothing yet.
pytestmark = [pytest.mark.image, pytest.mark.timeout(60, func_only=True)]

READ_ONLY = """
set -e
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/tmp"
exec chroot --userspec="$USER_AND_GROUP" "$ROOT" /usr/bin/env -i "$@"
"""
"""As the kubelet does it for the chart: a root nobody can write to, and a /tmp of its own."""


@dataclass(frozen=True)
class Image:
    root: Path
    """All layers, unpacked on top of each other."""
    config: dict[str, Any]
    report: str
    layers: list[str]
    """Digests, the base's first."""
    added: list[str]
    """Paths of what comes on top of the base and the byte code of its standard library."""

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the image's user and environment and nothing from outside."""
        env = {**os.environ, "ROOT": str(self.root), "USER_AND_GROUP": self.config["User"]}
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", READ_ONLY, "sh"]
        return subprocess.run(
            [*command, *self.config["Env"], *argv], env=env, capture_output=True, text=True, timeout=50, check=False
        )

    def python(self, program: str) -> str:
        done = self.run("python", "-c", program)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    if os.geteuid() != 0:
        give_up("unpacking and entering an image needs root")
    archive = image_build.default_archive()
    try:
        report = image_build.build("asyncop:dev", archive)
    except MissingToolError as error:
        give_up(str(error))
    root = tmp_path_factory.mktemp("image") / "root"
    root.mkdir()
    manifest = image_build.read_manifest(archive)
    added: list[str] = []
    with tarfile.open(archive) as tar:
        settings = json.load(tar.extractfile(manifest["Config"]) or pytest.fail("no config"))["config"]
        for number, name in enumerate(manifest["Layers"]):
            tar.extract(name, root.parent, filter="data")
            subprocess.run(["tar", "-xpf", str(root.parent / name), "-C", str(root)], check=True)
            if number >= len(manifest["Layers"]) - 2:
                with tarfile.open(root.parent / name) as layer:
                    added += layer.getnames()
            (root.parent / name).unlink()
    return Image(root, settings, report, manifest["Layers"], added)


def test_it_runs_as_nobody_on_a_read_only_root(image: Image) -> None:
    done = image.run(*image.config["Entrypoint"], "version")

    assert (done.returncode, done.stderr) == (0, "")
    assert image_build.version() in done.stdout


def test_without_arguments_it_says_what_it_can_do(image: Image) -> None:
    done = image.run(*image.config["Entrypoint"], *image.config["Cmd"])

    assert done.returncode == 0
    assert "run" in done.stdout


def test_only_tmp_can_be_written_to(image: Image) -> None:
    program = """
import os
print(os.getuid(), os.getgid(), [path for path in ("/", "/app", "/opt/asyncop", "/tmp") if os.access(path, os.W_OK)])
"""
    assert image.python(program) == "65532 65532 ['/tmp']"


def test_every_module_it_loads_is_compiled(image: Image) -> None:
    program = """
import os, sys
import asyncop, kubernetes_asyncio.client, kubernetes_asyncio.config
import aiohttp, click, msgspec, prometheus_client, structlog, uvloop, yaml
specs = [module.__spec__ for module in list(sys.modules.values()) if getattr(module, "__spec__", None)]
sources = [spec for spec in specs if spec.has_location and spec.origin.endswith(".py")]
print(len(sources) > 300, [spec.name for spec in sources if not os.path.exists(spec.cached)])
"""
    assert image.python(program) == "True []"


def test_generated_classes_still_import_and_keep_their_documentation(image: Image) -> None:
    program = """
from kubernetes_asyncio import client
print(client.V1Pod.__name__, "Pod" in client.CoreV1Api.list_namespaced_pod.__doc__, len(dir(client)) > 700)
"""
    assert image.python(program) == "V1Pod True True"


def test_it_adds_one_directory_and_nothing_of_how_it_was_built(image: Image) -> None:
    strangers = [path for path in image.added if not re.match(r"(app|opt|opt/asyncop(/.*)?)/?$", path)]

    assert strangers == []
    assert not (image.root / "etc/pip.conf").exists()
    assert not list((image.root / "run").rglob("*.crt"))


def test_nothing_is_in_it_that_serves_nobody_at_run_time(image: Image) -> None:
    useless = re.compile(r"/tests/|_test\.py$|\.(pyi|pyx|pxd|pxi|c|h)$|/site-packages/(pip|setuptools)/")
    modules = [path for path in (image.root / "opt/asyncop").rglob("*.so") if path.is_file()]

    assert [path for path in image.added if useless.search(path)] == []
    assert len(modules) > 8
    assert [path.name for path in modules if b".debug_info" in path.read_bytes()] == []


def test_it_adds_at_most_60_mb_to_its_base(image: Image) -> None:
    found = re.search(r"^asyncop +([\d.]+) MB", image.report, re.MULTILINE)

    assert found
    assert 20 < float(found[1]) <= 60


def test_its_settings_are_those_the_chart_counts_on(image: Image) -> None:
    environment = dict(entry.split("=", 1) for entry in image.config["Env"])

    assert image.config["User"] == "65532:65532"
    assert image.config["Entrypoint"] == ["/opt/asyncop/bin/python", "-m", "asyncop"]
    assert set(image.config["ExposedPorts"]) == {"8080/tcp", "8081/tcp"}
    assert "PYTHONOPTIMIZE" not in environment
    assert environment["PYTHONDONTWRITEBYTECODE"] == environment["PYTHONUNBUFFERED"] == "1"


def test_a_change_of_code_ships_the_top_layer_only(image: Image, tmp_path: Path) -> None:
    checkout, archive = tmp_path / "checkout", tmp_path / "changed.tar"
    for source in [
        *image_build.context_files(),
        *(image_build.ROOT / name for name in ("Dockerfile", ".dockerignore")),
    ]:
        target = checkout / source.relative_to(image_build.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.copytree(image_build.ROOT / "tests/testbed", checkout / "tests/testbed")
    with (checkout / "asyncop/__init__.py").open("a") as module:
        module.write("\nCHANGED = True\n")

    argv = [sys.executable, "-m", "tests.testbed.image_build", "--tag", "asyncop:changed", "--output", str(archive)]
    subprocess.run(argv, cwd=checkout, check=True, capture_output=True, timeout=50)

    changed = image_build.read_manifest(archive)["Layers"]
    assert changed[:-1] == image.layers[:-1]
    assert changed[-1] != image.layers[-1]


def test_the_archive_carries_the_tag_that_was_asked_for_and_the_charts(image: Image) -> None:
    manifest = image_build.read_manifest(image_build.default_archive())

    assert manifest["RepoTags"] == [f"docker.io/library/asyncop:{tag}" for tag in ("dev", image_build.version())]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("asyncop:dev", "docker.io/library/asyncop:dev"),
        ("asyncop", "docker.io/library/asyncop:latest"),
        ("team/asyncop:1", "docker.io/team/asyncop:1"),
        ("localhost/asyncop:1", "localhost/asyncop:1"),
        ("registry.example:5000/asyncop", "registry.example:5000/asyncop:latest"),
    ],
)
def test_a_short_name_is_completed_as_a_container_runtime_does_it(short: str, full: str) -> None:
    assert image_build.qualified(short) == full
