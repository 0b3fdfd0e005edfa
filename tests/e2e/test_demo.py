"""`make demo`: tells the truth, says what a machine lacks, and leaves nothing behind unless it is asked to."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.testbed.binaries import binaries_dir
from tests.testbed.cluster import Cluster
from tests.testbed.errors import MissingToolError
from tests.testbed.fixtures import give_up
from tests.testbed.packages import require_root
from tests.testbed.processes import marked
from tests.testbed.state import default_root

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.testbed.demo"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400, func_only=True)]  # it takes 45 s, if the image is built


@contextmanager
def playing(*flags: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The demo and what it prints; ended and cleaned up if the test is not done with it."""
    with subprocess.Popen([*COMMAND, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            yield demo, demo.stdout
        finally:
            demo.terminate()
            demo.wait(timeout=60)
            Cluster(default_root() / f"demo-{demo.pid}").down()


@pytest.fixture(autouse=True)
def _able() -> None:
    """Skip where it can't be played."""
    try:
        require_root("the demo")
        binaries_dir()
    except MissingToolError as error:
        give_up(str(error))


def test_it_brings_the_pod_back_and_names_commands_that_work() -> None:
    with playing("--keep") as (demo, output):
        said = output.read()

        assert demo.wait(timeout=10) == 0
        before, after = re.findall(r"^web-0 +Running +(\S+) +(\S+)$", said, re.MULTILINE)
        assert (before[0], after[0]) == ("node1", "node2")
        assert before[1] != after[1]
        assert len(set(re.findall(r"^web-1 +Running +(node2 +\S+)$", said, re.MULTILINE))) == 1
        assert re.search(r"s  Kubernetes +web-0 is Terminating on node1", said)
        assert re.search(r"s  asyncop +ForceDeleted: ", said)

        commands = "\n".join(re.findall(r"^  ((?:export|kubectl|python3) .*)", said, re.MULTILINE))
        shown = subprocess.run(["bash", "-e"], cwd=ROOT, input=commands, capture_output=True, text=True, timeout=60)
        assert shown.returncode == 0, shown.stderr
        assert "ForceDeleted" in shown.stdout
        assert not (default_root() / f"demo-{demo.pid}").exists()


def test_ctrl_c_leaves_nothing_behind() -> None:
    with playing() as (demo, output):
        assert any("$ helm install" in line for line in output)
        path = default_root() / f"demo-{demo.pid}"
        assert any(marked(path))

        demo.send_signal(signal.SIGINT)

        assert demo.wait(timeout=60) == 130
        assert not path.exists()
        assert not any(marked(path))


def test_missing_go_is_told_in_one_line_before_anything_is_made() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "demo: Go is not installed; the test bed compiles Kubernetes with it\n"


def test_missing_root_is_told_in_one_line_before_anything_is_made() -> None:
    # It gives root up when all is loaded: the checkout may be root's alone.
    program = "import os, sys; from tests.testbed import demo; os.setuid(65534); sys.exit(demo.main([]))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "demo: making a cluster with nodes needs root\n"
