"""The command line. Each command is imported when it is called, and imports what it needs when it runs.

Whatever is wrong with a flag, a file or the configuration is told in one line on standard error, without a traceback.

Exit codes: 0 clean stop, 1 crash, 2 usage, 3 a file or the configuration doesn't load, 4 the API server is unreachable
at start, 5 leadership lost with work that can't be stopped, 130 interrupted before anything had started.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

EXIT_CRASH, EXIT_USAGE, EXIT_CONFIG, EXIT_INTERRUPTED = 1, 2, 3, 130


def main() -> NoReturn:
    """Run the command of `sys.argv` and end the process with its exit code."""
    # The kernel ignores a SIGTERM that process 1 has no handler for: a Pod stopped while it still imports would wait
    # out its whole grace period. The manager replaces this when it starts.
    signal.signal(signal.SIGTERM, _end_before_start)
    _open_standard_files()
    try:
        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _open_standard_files() -> None:
    """Let no socket take the number of a standard file that was closed: uvloop aborts the process when it closes it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def run_command(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    import click

    from asyncop.api.errors import ConfigError
    from asyncop.cli.commands import group

    try:
        code = group.main(arguments, prog_name="asyncop", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return _tell(f"{error.format_message()}{hint}", EXIT_USAGE)
    except ConfigError as error:
        return _tell(str(error), EXIT_CONFIG)
    except click.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `asyncop --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CRASH
    return code if isinstance(code, int) else 0


def _tell(message: str, code: int) -> int:
    import click

    click.echo(f"asyncop: {' '.join(message.split())}", err=True)
    return code


def _end_before_start(number: int, frame: FrameType | None) -> None:
    os._exit(0)  # nothing has begun, so nothing needs ending; an exception might be caught by what is being imported
