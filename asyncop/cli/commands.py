"""The commands there are. Their modules are imported when they are called, so that `--help` stays cheap."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "run": ("asyncop.cli.run", "Run reconcilers from files, modules and the ready-made controllers."),
    "version": ("asyncop.cli.version", "Print the versions of asyncop and of what it stands on."),
}


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    "asyncop", cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
def group() -> None:
    """Controllers for Kubernetes, written in Python and run by asyncio."""
