"""Lay a configuration over an object by the rules of its type, as server-side apply does.

Maps and structs are merged by key, shared lists by the keys of their elements, everything atomic is replaced.
"""

from __future__ import annotations

from typing import Any

from asyncop.testing.fieldsets import element
from asyncop.testing.schema import Type, child, deduce


def merge(type_: Type, live: Any, config: Any) -> Any:
    """A new value; neither argument is changed."""
    shaped = deduce(type_, config)
    if shaped.sharing == "atomic":
        return config
    if isinstance(live, dict) and isinstance(config, dict):
        result = dict(live)
        for key, value in config.items():
            result[key] = merge(child(shaped, key), live[key], value) if key in live else value
        return result
    if isinstance(live, list) and isinstance(config, list) and shaped.sharing in ("map", "set"):
        return _merge_lists(shaped, live, config)
    return config


def _merge_lists(type_: Type, live: list[Any], config: list[Any]) -> list[Any]:
    """Elements only the object has keep their places; those of the configuration keep its order."""
    before = {element(type_, item): item for item in live}
    wanted = {element(type_, item): item for item in config}
    below = type_.element or type_
    queue = list(wanted)
    result: list[Any] = []
    for key, item in before.items():
        if key not in wanted:
            result.append(item)
            continue
        while queue and key in queue:
            following = queue.pop(0)
            result.append(_merged(below, before, wanted, following))
    result += [_merged(below, before, wanted, key) for key in queue]
    return result


def _merged(type_: Type, before: dict[str, Any], wanted: dict[str, Any], key: str) -> Any:
    return merge(type_, before[key], wanted[key]) if key in before else wanted[key]
