"""Who owns which fields: what every write does to managedFields, and server-side apply.

Promises what the real server does for one served version of a kind: a change takes ownership from others unless an
applier would lose it (409 with causes, until forced), and what an applier no longer applies goes unless somebody else
owns it. Conversion between versions is left out: owners of another version keep what they have.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from asyncop.testing import fieldsets
from asyncop.testing.merging import merge
from asyncop.testing.refusals import RefusedError, Who, shown

if TYPE_CHECKING:
    from asyncop.testing.fieldsets import FieldSet, Path
    from asyncop.testing.schema import Obj, Type

_UNOWNED = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ]
    ]
)


class Owner(NamedTuple):
    """One entry of managedFields but for its fields and time."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


class Owned(NamedTuple):
    """What an owner has, since when."""

    fields: FieldSet
    time: str
    """Empty where the real server loses it: scaling, and applying what is there already."""
    encoded: Obj | None = None
    """The fields as managedFields has them, while they are known."""

    def keeping(self, fields: FieldSet) -> Owned:
        """The same with these fields left."""
        return self if fields == self.fields else Owned(fields, self.time)


Owners = dict[Owner, Owned]


class Applying(NamedTuple):
    """What an apply is made with."""

    owner: Owner
    force: bool
    reset: tuple[Path, ...]
    """Prefixes of what this endpoint doesn't write; nobody can own that through it."""
    blank: Obj
    """The kind's empty object."""


def now() -> str:
    """This second, as objects carry times."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(obj: Obj) -> Owners:
    """The owners that an object names."""
    owners: Owners = {}
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        owner = Owner(
            entry.get("manager", ""), entry["operation"], entry.get("apiVersion", ""), entry.get("subresource", "")
        )
        encoded = entry.get("fieldsV1") or {}
        owners[owner] = Owned(fieldsets.decode(encoded), entry.get("time", ""), encoded)
    return owners


def write(obj: Obj, owners: Owners) -> None:
    """Put the owners into the object: appliers first, then by time."""
    entries = []
    for owner, owned in sorted(owners.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0])):
        entry: Obj = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api_version}
        if owned.time:
            entry["time"] = owned.time
        known = owned.encoded if owned.encoded is not None else fieldsets.encode(owned.fields)
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": known}
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def updated(type_: Type, old: Obj, new: Obj, owners: Owners, owner: Owner) -> Owners:
    """The owners after a write that isn't an apply: it owns what it changed."""
    difference = fieldsets.compare(type_, _plain(old), _plain(new))
    changed = (difference.modified | difference.added) - _UNOWNED
    gained = {path for path in changed if _value(new, path)} if owner.subresource == "scale" else changed
    result: Owners = {}
    for other, owned in owners.items():
        left = owned.fields - difference.removed
        if other != owner or not gained:
            left -= changed
        if left:
            result[other] = owned.keeping(left)
    if gained:
        mine = result.get(owner, Owned(frozenset(), ""))
        result[owner] = Owned(mine.fields | gained, mine.time if owner.subresource == "scale" else now())
    return result


def _value(obj: Any, path: Path) -> Any:
    """What is at a path of field names: of a Scale, zero replicas are no field that one could own."""
    for part in path:
        obj = obj.get(part[2:]) if isinstance(obj, dict) else None
    return obj


def _plain(obj: Obj) -> Obj:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def applied(type_: Type, live: Obj, config: Obj, applying: Applying, who: Who) -> tuple[Obj, Owners]:
    """The object with a configuration applied, and its owners.

    Raises:
        RefusedError: 409, somebody else owns a field that would change, and it isn't forced.
    """
    owners, owner = read(live), applying.owner
    plain = _plain(live)
    if not owners and live["metadata"].get("uid"):
        owners = _owned_before(type_, plain, applying)
    last = owners.get(owner)
    claimed = frozenset(path for path in fieldsets.of(type_, config) - _UNOWNED if not _is_reset(path, applying.reset))
    owners[owner] = Owned(claimed, last.time if last else "")
    merged = merge(type_, plain, config)
    if last and last.fields:
        merged = _pruned(type_, merged, owners, last.fields)
    if merged != plain:
        owners[owner] = Owned(claimed, now())
    return merged, _settled(type_, (plain, merged), owners, applying, who)


def _owned_before(type_: Type, live: Obj, applying: Applying) -> Owners:
    """What was there before anybody was tracked has an owner of its own, so that an apply can conflict with it."""
    first = Owner("before-first-apply", "Update", applying.owner.api_version)
    return updated(type_, applying.blank, live, {}, first)


def _is_reset(path: Path, reset: tuple[Path, ...]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in reset)


def _pruned(type_: Type, merged: Obj, owners: Owners, last: FieldSet) -> Obj:
    named = fieldsets.with_named(type_, last)
    pruned = fieldsets.without(type_, merged, named)
    everything = fieldsets.with_named(type_, fieldsets.of(type_, merged))
    claimed: set[Path] = set().union(*(owned.fields for owned in owners.values()))
    left = fieldsets.with_named(type_, fieldsets.of(type_, pruned))
    pruned = fieldsets.without(type_, merged, everything - left - fieldsets.with_named(type_, claimed))
    left = fieldsets.with_named(type_, fieldsets.of(type_, pruned))
    result: Obj = fieldsets.without(type_, merged, (everything - left) & named)
    return result


def _settled(type_: Type, change: tuple[Obj, Obj], owners: Owners, applying: Applying, who: Who) -> Owners:
    difference = fieldsets.compare(type_, *change)
    changed = {
        path for path in (difference.modified | difference.added) - _UNOWNED if not _is_reset(path, applying.reset)
    }
    lost = {other: owned.fields & changed for other, owned in owners.items() if other != applying.owner}
    conflicts = {other: fields for other, fields in lost.items() if fields}
    if conflicts and not applying.force:
        raise _refused(conflicts, who)
    result = {}
    for other, owned in owners.items():
        if other == applying.owner:
            left = owned.fields
        else:
            left = owned.fields - difference.removed - conflicts.get(other, frozenset())
        if left:
            result[other] = owned.keeping(left)
    return result


def _refused(conflicts: dict[Owner, FieldSet], who: Who) -> RefusedError:
    lines: dict[str, list[str]] = {}
    causes = []
    for owner, fields in sorted(conflicts.items()):
        for path in sorted(fields, key=_rank):
            message = f"conflict with {_named(owner)}"
            causes.append({"reason": "FieldManagerConflict", "message": message, "field": _shown(path)})
            lines.setdefault(_named(owner), []).append(_shown(path))
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        parts = [
            f"conflicts with {name}:\n" + "\n".join(f"- {path}" for path in paths) for name, paths in lines.items()
        ]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(parts)
    return RefusedError(409, "Conflict", text, {"causes": causes})


def _rank(path: Path) -> list[tuple[bool, str]]:
    """What is at a place comes before what is below it."""
    return [(depth < len(path) - 1, part) for depth, part in enumerate(path)]


def _named(owner: Owner) -> str:
    name = f'"{owner.manager}"'
    if owner.subresource:
        name += f' with subresource "{owner.subresource}"'
    if owner.operation == "Update":
        name += f" using {owner.api_version}"
    return name


def _shown(path: Path) -> str:
    text = ""
    for part in path:
        kind, value = part[:2], part[2:]
        if kind == "f:":
            text += f".{value}"
        elif kind == "k:":
            text += "[" + ",".join(f"{key}={shown(item)}" for key, item in msgspec.json.decode(value).items()) + "]"
        else:
            text += f"[={value}]"
    return text
