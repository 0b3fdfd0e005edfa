"""The `asyncop` command as a process of its own, forked, so that a case costs milliseconds instead of its imports."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import asyncop.cli.start  # noqa: F401 - paid for once, here, not in each fork
from asyncop.cli import main

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 30.0  # seconds; these commands end by themselves at once


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int | None
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line that it said on standard error, without `asyncop: `."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("asyncop: "), self.err
        return lines[0].removeprefix("asyncop: ")


Command = Callable[..., Ended]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run `asyncop ARGUMENTS` in the test's folder; `env` is added to the environment."""

    def run(*arguments: str, env: Mapping[str, str] | None = None) -> Ended:
        out, err = tmp_path / ".out", tmp_path / ".err"
        process = multiprocessing.get_context("fork").Process(
            target=_command, args=(arguments, dict(env or {}), tmp_path, out, err)
        )
        process.start()
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
            process.join()
        return Ended(process.exitcode, out.read_text(), err.read_text())

    return run


def _command(arguments: tuple[str, ...], env: dict[str, str], folder: Path, out: Path, err: Path) -> None:
    os.chdir(folder)
    os.environ.update(env)
    sys.stdout, sys.stderr = out.open("w"), err.open("w")
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stderr.fileno(), 2)
    sys.argv = ["asyncop", *arguments]
    main()
