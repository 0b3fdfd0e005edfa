"""Predicates: which changes of its primary objects wake a reconciler.

A predicate is a function of (new, old); `old` is None for an object that appeared. It filters triggers, never the
store: what it hides is still read. Those here combine with `&`, `|` and `~`, also with plain functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PredicateFunction = Callable[[Any, Any], bool]


class Predicate:
    """A predicate that combines: `generation_changed | labels_changed`."""

    def __init__(self, function: PredicateFunction) -> None:
        self._function = function

    def __call__(self, new: Any, old: Any) -> bool:
        """Whether the change counts."""
        return self._function(new, old)

    def __and__(self, other: PredicateFunction) -> Predicate:
        return Predicate(lambda new, old: self(new, old) and other(new, old))

    def __or__(self, other: PredicateFunction) -> Predicate:
        return Predicate(lambda new, old: self(new, old) or other(new, old))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Predicate:
        return Predicate(lambda new, old: not self(new, old))


@Predicate
def generation_changed(new: Any, old: Any) -> bool:
    """Its spec changed, it appeared, or its deletion began; status, labels and annotations don't count."""
    return (
        old is None
        or new.metadata.generation != old.metadata.generation
        or new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
    )


@Predicate
def labels_changed(new: Any, old: Any) -> bool:
    """Its labels changed, or it appeared."""
    return old is None or bool(new.metadata.labels != old.metadata.labels)


@Predicate
def annotations_changed(new: Any, old: Any) -> bool:
    """Its annotations changed, or it appeared."""
    return old is None or bool(new.metadata.annotations != old.metadata.annotations)
