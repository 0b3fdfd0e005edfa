"""JSON that is nested deeper than a decoder goes: cut short, so that what stands around it can still be read.

An API server takes 10,000 levels in a custom resource; msgspec, as much else, gives up where Python's stack would. One
such object must cost that object and not its whole kind, least of all the process.
"""

from __future__ import annotations

import re

LEVELS = 400  # far below Python's recursion limit (1000), which the callers' frames share
TOO_DEEP = b'"\\u0000nested too deep"'
"""Stands where something was cut out; with a NUL, since hardly any real text begins with one."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def shallow(data: bytes) -> bytes:
    """`data` with `TOO_DEEP` in place of every list and mapping beyond `LEVELS` levels."""
    kept: list[bytes] = []
    depth = copied = 0
    for token in _TOKEN.finditer(data):
        character = token.group()[:1]
        if character in b"[{":
            if depth == LEVELS:
                kept += [data[copied : token.start()], TOO_DEEP]
            depth += 1
        elif character in b"]}":
            depth -= 1
            if depth == LEVELS:
                copied = token.end()
    kept.append(data[copied:])
    return b"".join(kept)
