"""The chart as helm renders it, decoded, for tests that look at one thing each."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed.binaries import binaries_dir
from tests.testbed.errors import MissingToolError
from tests.testbed.fixtures import give_up

CHART = Path(__file__).resolve().parents[2] / "helm"
ENABLED = "controllers.stuckPods.enabled=true"


@dataclass(frozen=True)
class Helm:
    """The helm binary at work on our chart; it reads no cluster and no configuration of the user's."""

    binary: Path
    home: Path

    def run(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        argv = [str(self.binary), *map(str, args)]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    def template(
        self, *sets: str, files: tuple[Path, ...] = (), release: str = "asyncop", namespace: str = "ops"
    ) -> list[dict[str, Any]]:
        """Every object of an installation with these `--set`s."""
        done = self.run("template", release, CHART, "--namespace", namespace, *flags(sets, files))
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def refusal(self, *sets: str) -> str:
        """What helm says when it must not install with these `--set`s."""
        done = self.run("template", "asyncop", CHART, *flags(sets, ()))
        assert done.returncode != 0, done.stdout
        return done.stderr


def flags(sets: tuple[str, ...], files: tuple[Path, ...]) -> list[str]:
    return [part for one in files for part in ("-f", str(one))] + [part for one in sets for part in ("--set", one)]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The test bed's helm if it is built, else the machine's."""
    try:
        built = binaries_dir() / "helm"
    except MissingToolError:
        built = Path()
    found = built if built.is_file() else Path(shutil.which("helm") or "")
    if not found.is_file():
        give_up("helm is not built (`python3 -m tests.testbed build`) and not installed")
    return Helm(found, tmp_path_factory.mktemp("helm-home"))
