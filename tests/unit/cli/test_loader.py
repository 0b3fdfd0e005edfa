"""FILEs and modules that don't load: exit code 3 and one line that names the file, the line and the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command, Ended

GOOD = """
import asyncop

@asyncop.reconciler("pods")
async def {name}(pod, ctx):
    return None
"""


@pytest.fixture
def load(command: Command, tmp_path: Path):
    """Write files, run `asyncop run` on what is named; a load that succeeds ends at the kubeconfig that isn't there."""

    def run(files: dict[str, str], *arguments: str) -> Ended:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        off = ("--health-bind-address", "0", "--metrics-bind-address", "0", "--kubeconfig", "nowhere")
        return command("run", "-A", "-q", *off, *arguments)

    return run


def has_loaded(ended: Ended) -> bool:
    return "kubeconfig nowhere does not exist" in ended.line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import asyncop\nx = (\n", "op.py:2: SyntaxError: '(' was never closed"),
        ("import asyncop\n\nprint(nope)\n", "op.py:3: NameError: name 'nope' is not defined"),
        ("import nosuchmodule\n", "op.py:1: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("raise ValueError('two\\nlines')\n", "op.py:1: ValueError: two lines"),
        ("import sys\nsys.exit(4)\n", "op.py:2: it ended the process while it was loaded"),
        ("import asyncio\nraise asyncio.CancelledError('x')\n", "op.py:2: asyncio.exceptions.CancelledError: x"),
        ("class Odd(BaseException): pass\nraise Odd('x')\n", "op.py:2: op.Odd: x"),
        ("x = 1\n", "op.py: it declares no reconciler"),
        ("", "op.py: it declares no reconciler"),
        (GOOD.format(name="web") * 2, "op.py:10: two controllers are named 'web'"),
        ("import asyncop\n@asyncop.reconciler('pods', worker=1)\ndef f(): ...", "op.py:2: TypeError: unknown argument"),
        ("import neighbour\n", "op.py:1: ZeroDivisionError"),
        ("import broken\n", "broken.py:1: SyntaxError"),
        (GOOD.format(name="stuckPods"), "'stuckPods' is the name of a ready-made controller"),
    ],
)
def test_a_file_that_fails_is_told_with_its_line(load, text: str, says: str) -> None:
    ended = load({"op.py": text, "neighbour.py": "1 / 0\n", "broken.py": "def\n"}, "op.py")

    assert says in ended.line
    assert ended.code == 3


def test_a_failure_has_a_traceback_in_the_debug_log_only(load, tmp_path: Path, command: Command) -> None:
    (tmp_path / "op.py").write_text("1 / 0\n")

    ended = command("run", "-A", "-v", "--log-format", "json", "op.py")

    log, line = ended.err.splitlines()
    assert "ZeroDivisionError" in line
    assert '"level":"debug"' in log
    assert "Traceback" in log


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("nowhere.py", "nowhere.py: no such file"),
        (".", ".: not a file"),
        ("x" * 5000, "no such file"),
    ],
)
def test_a_file_that_is_not_there_is_named(load, file: str, says: str) -> None:
    ended = load({}, file)

    assert says in ended.line
    assert ended.code == 3


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("nowhere", "-m nowhere: there is no module nowhere"),
        ("nowhere.deeper", "-m nowhere.deeper: there is no module nowhere"),
        ("failing", "-m failing:2: ZeroDivisionError: division by zero"),
        ("json", "-m json: it declares no reconciler"),
    ],
)
def test_a_module_that_fails_is_named(load, module: str, says: str) -> None:
    ended = load({"failing.py": "\n1 / 0\n"}, "-m", module)

    assert says in ended.line
    assert ended.code == 3


def test_two_files_with_one_controller_name_are_refused(load) -> None:
    ended = load({"a.py": GOOD.format(name="web"), "b.py": GOOD.format(name="web")}, "a.py", "b.py")

    assert "two controllers are named 'web'" in ended.line
    assert ended.code == 3


def test_files_and_modules_load_together(load) -> None:
    ended = load({"a.py": GOOD.format(name="a"), "pkg/b.py": GOOD.format(name="b")}, "a.py", "-m", "pkg.b")

    assert has_loaded(ended)


def test_a_file_imports_its_neighbours(load) -> None:
    ended = load({"ops/a.py": "import shared\n" + GOOD.format(name="a"), "ops/shared.py": "x = 1"}, "ops/a.py")

    assert has_loaded(ended)


def test_a_file_that_another_has_imported_is_not_loaded_again(load) -> None:
    files = {"a.py": GOOD.format(name="a"), "b.py": "import a\n" + GOOD.format(name="b")}

    assert has_loaded(load(files, "b.py", "a.py"))
    assert has_loaded(load(files, "a.py", "b.py"))
    assert has_loaded(load(files, "b.py", "-m", "a"))


def test_a_file_may_be_named_like_a_module_of_ours_or_of_python(load) -> None:
    ended = load({"json.py": GOOD.format(name="a"), "x/json.py": GOOD.format(name="b")}, "json.py", "x/json.py")

    assert has_loaded(ended)


def test_types_of_a_file_are_found_by_their_module(load) -> None:
    text = (
        "from __future__ import annotations\nimport asyncop\n"
        "class Part(asyncop.Struct):\n    n: int = 0\n"
        "class Options(asyncop.Struct):\n    part: Part = Part()\n"
        "@asyncop.reconciler('pods', options=Options)\nasync def web(pod, ctx): ...\n"
    )

    assert has_loaded(load({"op.py": text}, "op.py", "--set", "controllers.web.part.n=3"))
    assert "controllers.web.part.n: expected a whole number, got 'x'" in (
        load({"op.py": text}, "op.py", "--set", "controllers.web.part.n=x").line
    )


def test_the_name_is_that_of_the_first_file(load, tmp_path: Path, command: Command) -> None:
    (tmp_path / "web_pods.py").write_text(GOOD.format(name="a"))

    ended = command("run", "-A", "--kubeconfig", "nowhere", "web_pods.py", "--log-format", "json",
                    "--health-bind-address", "0", "--metrics-bind-address", "0")  # fmt: skip

    assert '"operator":"web_pods"' in ended.err


def test_a_file_without_a_usable_name_needs_one(load) -> None:
    ended = load({"my op.py": GOOD.format(name="a")}, "my op.py")

    assert "give --name" in ended.line
    assert ended.code == 2
    assert has_loaded(load({}, "my op.py", "--name", "my-op"))
