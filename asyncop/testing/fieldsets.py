"""Sets of field paths: what an object consists of, what differs between two, and taking fields out again.

A path is a tuple of elements as managedFields writes them: `f:spec`, `k:{"name":"web"}`, `v:"x"`. The rules (what is
a leaf, when a parent counts) are those of structured merge and diff, on which server-side apply stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from asyncop.testing.schema import UNSET, Obj, Type, child, deduce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Path = tuple[str, ...]
FieldSet = frozenset[Path]
ABSENT: Any = object()


@dataclass(slots=True)
class Difference:
    """What a write changed."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def note(self, path: Path, old: Any, new: Any) -> None:
        """Put a leaf where it belongs."""
        if old is ABSENT:
            self.added.add(path)
        elif new is ABSENT:
            self.removed.add(path)
        elif old != new:
            self.modified.add(path)


def element(type_: Type, value: Any) -> str:
    """The path element of an item in a list that appliers share."""
    if type_.sharing == "set" or not isinstance(value, dict):
        return "v:" + msgspec.json.encode(value).decode()
    keys = {}
    for key in sorted(type_.keys):
        found = value.get(key, ABSENT)
        if found is ABSENT and type_.element is not None:
            found = child(type_.element, key).default
        if found is not ABSENT and found is not UNSET:
            keys[key] = found
    return "k:" + msgspec.json.encode(keys).decode()


def compare(type_: Type, old: Any, new: Any) -> Difference:
    """What leads from one object to the other."""
    difference = Difference()
    _compare(type_, old, new, (), difference)
    return difference


def _compare(type_: Type, old: Any, new: Any, path: Path, out: Difference) -> None:
    if old == new:
        return
    shaped = deduce(type_, new if new is not ABSENT else old)
    parts = None if shaped.sharing == "atomic" else _parts(shaped, old, new)
    if parts is None or (_is_empty(old) and _is_empty(new)):
        out.note(path, old, new)
        return
    for part, below, before, after in parts:
        _compare(below, before, after, (*path, part), out)
    if old is ABSENT:
        out.added.add(path)
    elif new is ABSENT:
        out.removed.add(path)


def _is_empty(value: Any) -> bool:
    return value is ABSENT or value is None or value == {} or value == []


def _parts(type_: Type, old: Any, new: Any) -> list[tuple[str, Type, Any, Any]] | None:
    """The children of both, paired; None for leaves."""
    before, after = _children(type_, old), _children(type_, new)
    if before is None or after is None:
        return None
    return [
        (part, (after.get(part) or before[part])[0], before.get(part, _NO)[1], after.get(part, _NO)[1])
        for part in before | after
    ]


_NO: tuple[Any, Any] = (None, ABSENT)


def _children(type_: Type, value: Any) -> dict[str, tuple[Type, Any]] | None:
    if value is ABSENT or value is None:
        return {}
    if isinstance(value, dict) and type_.kind in ("struct", "map", "any"):
        return {"f:" + key: (child(type_, key), item) for key, item in value.items()}
    if isinstance(value, list) and type_.kind == "list":
        return {element(type_, item): (type_.element or type_, item) for item in value}
    return None


def of(type_: Type, value: Any) -> FieldSet:
    """The fields that an applied configuration claims."""
    out: set[Path] = set()
    _claim(type_, value, (), out)
    return frozenset(out)


def _claim(type_: Type, value: Any, path: Path, out: set[Path]) -> None:
    shaped = deduce(type_, value)
    children = None if shaped.sharing == "atomic" else _children(shaped, value)
    if children is None:
        out.add(path)
        return
    for part, (below, item) in children.items():
        deeper = (*path, part)
        _claim(below, item, deeper, out)
        declared = shaped.kind == "struct" and part[2:] in shaped.fields
        if part[0] != "f" or not declared or item is None or item == {}:
            out.add(deeper)


def undeclared(type_: Type, value: Any, path: str = "") -> str:
    """The path of the first field that the type doesn't have; empty if there is none."""
    if isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key}"
            if type_.kind == "struct" and key not in type_.fields and type_.element is None:
                return here
            if found := undeclared(child(type_, key), item, here):
                return found
    elif isinstance(value, list) and type_.element is not None:
        for item in value:
            part = element(type_, item) if type_.sharing in ("map", "set") else ""
            if found := undeclared(type_.element, item, f"{path}[{part[2:]}]"):
                return found
    return ""


def with_named(type_: Type, fields: Iterable[Path]) -> set[Path]:
    """The set and, of each path, the struct fields it leads through."""
    out = set(fields)
    for path in fields:
        current: Type = type_
        for depth, part in enumerate(path[:-1], 1):
            if part[0] == "f":
                name = part[2:]
                if current.kind == "struct" and name in current.fields:
                    out.add(path[:depth])
                current = child(current, name)
            else:
                current = current.element or current
    return out


def without(type_: Type, value: Any, fields: Iterable[Path]) -> Any:
    """The object without those fields; atomic values only go whole."""
    chosen = set(fields)
    touched = {path[:depth] for path in chosen for depth in range(1, len(path) + 1)}
    return _without(type_, value, (), (chosen, touched))


def _without(type_: Type, value: Any, path: Path, sets: tuple[set[Path], set[Path]]) -> Any:
    chosen, touched = sets
    shaped = deduce(type_, value)
    if shaped.sharing == "atomic" or not value:
        return value
    children = _children(shaped, value)
    if children is None:
        return value
    kept: list[tuple[str, Any]] = []
    for part, (below, item) in children.items():
        deeper = (*path, part)
        if deeper in chosen:
            continue
        kept.append((part, _without(below, item, deeper, sets) if deeper in touched else item))
    if isinstance(value, list):
        return [item for _, item in kept]
    return {part[2:]: item for part, item in kept}


def encode(fields: FieldSet | set[Path]) -> Obj:
    """As FieldsV1."""
    root: Obj = {}
    for path in sorted(fields):
        node = root
        for part in path:
            node = node.setdefault(part, {})
        node["."] = {}
    _tidy(root)
    return root


def _tidy(node: Obj) -> None:
    for part, below in node.items():
        if part == ".":
            continue
        if below.keys() == {"."}:
            below.clear()
        else:
            _tidy(below)


def decode(fields: Obj) -> FieldSet:
    """From FieldsV1."""
    return frozenset(_paths(fields, ()))


def _paths(node: Obj, path: Path) -> Iterator[Path]:
    for part, below in node.items():
        if part == ".":
            yield path
        elif below:
            yield from _paths(below, (*path, part))
        else:
            yield (*path, part)
