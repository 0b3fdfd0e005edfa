"""All cases, by the names of their functions."""

from tests.contract.apiserver.cases import (
    CASES,
    applies,
    below,
    compactions,
    custom,
    kinds,
    lists,
    objects,
    patches,
    watches,
)

__all__ = ["CASES", "applies", "below", "compactions", "custom", "kinds", "lists", "objects", "patches", "watches"]
