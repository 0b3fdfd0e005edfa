"""`asyncop version`: what a bug report needs, without importing any of it."""

from __future__ import annotations

import platform
from importlib import metadata

import click

_PARTS = ("kubernetes_asyncio", "aiohttp", "uvloop", "msgspec")


@click.command("version")
def command() -> None:
    """Print the versions of asyncop and of what it stands on."""
    parts = [f"Python {platform.python_version()}", *(f"{part} {_version(part)}" for part in _PARTS)]
    click.echo(f"asyncop {_version('asyncop')} ({', '.join(parts)})")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "missing"
