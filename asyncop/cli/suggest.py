"""What to tell somebody who gave a name that isn't there."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ALIKE = 0.5  # of difflib's 0 to 1; its default of 0.6 misses two typos in a short word


def nearest(name: object, names: Iterable[str]) -> str:
    """`did you mean X?`, or if nothing is alike, what there is."""
    there = sorted(names)
    close = difflib.get_close_matches(str(name), there, n=1, cutoff=ALIKE)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(there) or 'none'}"
