"""What the server knows of the fields of a kind: types, how appliers share them, how patches merge them.

Built-in kinds come from the data file beside this module, made from Kubernetes' own Go types (a contract test holds
it to what a real server does). Custom kinds get theirs from the schema in their definition, in `crd.py`. Both end as
`Type`, so that patches, ownership and pruning know one form only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

Obj = dict[str, Any]
"""One object of the API as decoded from JSON."""

UNSET: Any = object()
"""There is no default; null can be one."""

SCALARS = frozenset(
    [
        "string",
        "bool",
        "int32",
        "int64",
        "integer",
        "number",
        "boolean",
        "bytes",
        "time",
        "microtime",
        "quantity",
        "intOrString",
        "any",
    ]
)


@dataclass(slots=True, eq=False)
class Type:
    """One field's type at the place where it is used."""

    kind: str
    """A scalar's name, `struct`, `map`, `list`, or `any` for what has no schema."""
    name: str = ""
    """A built-in struct's name, by which its fields are found."""
    own_fields: dict[str, Type] | None = None
    """Fields of a struct that has no name."""
    element: Type | None = None
    """Of a map or list."""
    sharing: str = ""
    """Of lists `atomic`, `set` or `map`; of maps and structs `granular` or `atomic`."""
    keys: tuple[str, ...] = ()
    """What tells the elements of a `map` list apart."""
    merge: str | None = None
    """Strategic merge of a list: None replaces it, "" merges values, else the key of its elements."""
    retain_keys: bool = False
    pointer: bool = False
    omitempty: bool = False
    omitzero: bool = False
    is_optional: bool = False
    """Leaves nothing behind where there is no value."""
    default: Any = UNSET
    rules: Obj = field(default_factory=dict)
    """A custom kind's constraints, as its schema has them."""

    @property
    def fields(self) -> dict[str, Type]:
        """A struct's fields by their names on the wire."""
        return self.own_fields if self.own_fields is not None else _fields(self.name)


ANY = Type("any", sharing="granular")
ANY_LIST = Type("list", element=ANY, sharing="atomic")


def builtin(name: str) -> Type:
    """The type of a built-in kind, named as in the data file (`core.Pod`)."""
    raw = _data()[name]
    return Type("struct", name=name, sharing="atomic" if raw.get("*") == "atomic" else "granular")


@cache
def _data() -> dict[str, dict[str, str]]:
    text = resources.files("asyncop.testing").joinpath("schemas.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def _fields(name: str) -> dict[str, Type]:
    return {key: _parse(text) for key, text in _data()[name].items() if key != "*"}


def _parse(text: str) -> Type:
    written, *flags = text.split(" ")
    result = _parse_type(written)
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in ("omitempty", "omitzero"):
            setattr(result, name, True)
        elif name in ("atomic", "set", "granular"):
            result.sharing = name
        elif name == "map":
            result.sharing, result.keys = "map", tuple(value.split(","))
        elif name == "merge":
            result.merge = value
        elif name == "keys":
            result.retain_keys = True
        elif name == "default":
            result.default = json.loads(value)
    result.is_optional = _is_optional(result)
    return result


def _is_optional(type_: Type) -> bool:
    if type_.kind in ("struct", "time", "microtime") and not type_.pointer:
        return type_.omitempty and type_.omitzero
    return type_.omitempty


def _parse_type(written: str) -> Type:
    if written.startswith("*"):
        return replace(_parse_type(written[1:]), pointer=True)
    if written.startswith("[]"):
        return Type("list", element=_parse_type(written[2:]), sharing="atomic")
    if written.startswith("map:"):
        return Type("map", element=_parse_type(written[4:]), sharing="granular")
    if written in SCALARS:
        return Type(written, sharing="granular" if written == "any" else "")
    return builtin(written)


def child(parent: Type, key: str) -> Type:
    """The type below a struct, a map or a value without schema."""
    if parent.kind == "struct":
        return parent.fields.get(key, ANY)
    return parent.element or ANY


def deduce(declared: Type, value: Any) -> Type:
    """A value without schema is what it looks like; its lists are one whole."""
    if declared.kind == "any" and isinstance(value, list):
        return ANY_LIST
    return declared
