"""The client's log. structlog is imported with the first message: it would be a tenth of the memory of a client."""

from __future__ import annotations

from typing import Any


def log() -> Any:
    """The logger of this package."""
    import structlog

    return structlog.get_logger("asyncop.client")
