"""Durations as people write them: `3s`, `5m`, `1h30m`, `250ms`, or plain seconds."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")


def parse_duration(value: str | float) -> float:
    """Seconds in `value`.

    Raises:
        ValueError: it is negative or not a duration; the message shows the forms that are.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        text = str(value).strip()
        if _WHOLE.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        else:
            try:
                seconds = float(text)
            except ValueError:
                seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{value!r} is not a duration; write 3s, 5m, 1h30m or seconds")
    return seconds


class Duration(float):
    """Seconds; in configuration written as `3s`, `5m`, `1h30m` or a plain number."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: str | float) -> Duration:
        """See `parse_duration`."""
        return cls(parse_duration(value))
