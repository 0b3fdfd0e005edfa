"""Values as messages show them: whatever somebody has written, it stays one short line and costs no time."""

from __future__ import annotations

import reprlib
from typing import Any

_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict = 3, 4, 4  # a few aliases of YAML stand for gigabytes
_short.maxstring = _short.maxother = 100


def shown(value: Any) -> str:
    """`repr`, cut short."""
    return _short.repr(value)
