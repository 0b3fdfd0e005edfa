"""One controller's options: what YAML gave, turned into an instance of its options' type.

msgspec converts; this module says what is wrong in the words of whoever writes the configuration: the path, the value
that is there, what is expected, and for an unknown key the one that is nearest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect

from asyncop.api.duration import Duration
from asyncop.api.errors import ConfigError
from asyncop.api.meta import decode_hook
from asyncop.cli.shown import shown
from asyncop.cli.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncop.api.struct import Struct

StructT = TypeVar("StructT", bound="Struct")

_SEQUENCES = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_AT = re.compile(r"(?s)(?P<problem>.*) - at `\$(?P<path>[^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`, got `[^`]*`")
_WORDS = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def convert(values: dict[str, Any], kind: type[StructT], path: str, also: Sequence[str] = ()) -> StructT:
    """The options that `values` describe.

    Args:
        values: keys as on the wire (camelCase).
        kind: what to make.
        path: where they stand in the configuration; messages start with it.
        also: keys beside them that somebody else reads, for "did you mean".

    Raises:
        ConfigError: a key is unknown, missing, or its value doesn't fit.
    """
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    known = _of_struct(values, info, path, also)
    try:
        return msgspec.convert(known, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise _explained(error, known, info, path) from error


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Duration):
        return Duration.parse(value)
    try:
        return decode_hook(kind, value)
    except NotImplementedError as error:
        raise ValueError(f"{kind.__name__} can't be read from a configuration") from error


# -- unknown keys


def _checked(value: Any, info: inspect.Type, path: str) -> Any:
    """`value` without absent fields; raises for the first key that a Struct in it doesn't know."""
    if isinstance(info, inspect.UnionType):
        info = _member(value, info)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        return _of_struct(value, info, path)
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _checked(item, info.value_type, f"{path}.{key}") for key, item in value.items()}
    if isinstance(info, _SEQUENCES) and isinstance(value, list):
        return [_checked(item, info.item_type, f"{path}[{number}]") for number, item in enumerate(value)]
    return value


def _of_struct(value: dict[str, Any], info: inspect.StructType, path: str, also: Sequence[str] = ()) -> dict[str, Any]:
    fields = {field.encode_name: field.type for field in info.fields}
    kept = {}
    for key, item in value.items():
        if key not in fields:
            raise ConfigError(f"{path}.{key}: no such key; {nearest(key, [*fields, *also])}")
        if item is not None or _takes_none(fields[key]):
            kept[key] = _checked(item, fields[key], f"{path}.{key}")
    return kept


def _member(value: Any, union: inspect.UnionType) -> inspect.Type:
    """The part of a union that a mapping or a list is meant for."""
    wanted: tuple[type, ...] = ()
    if isinstance(value, dict):
        wanted = (inspect.StructType, inspect.DictType)
    elif isinstance(value, list):
        wanted = _SEQUENCES
    return next((member for member in union.types if isinstance(member, wanted)), union)


def _takes_none(info: inspect.Type) -> bool:
    members = info.types if isinstance(info, inspect.UnionType) else (info,)
    return any(isinstance(member, inspect.NoneType | inspect.AnyType) for member in members)


# -- values that don't fit


def _explained(error: msgspec.ValidationError, values: Any, info: inspect.Type, path: str) -> ConfigError:
    """Msgspec's error in the words of whoever writes the configuration."""
    text = str(error)
    match = _AT.fullmatch(text)
    problem, steps = (match["problem"], match["path"]) if match else (text, "")
    value: Any = values
    at: inspect.Type | None = info
    for key, number in _STEP.findall(steps):
        value, at = _step(value, at, key, number)
    return ConfigError(f"{path}{steps}: {_worded(problem, value, at)}")


def _step(value: Any, info: inspect.Type | None, key: str, number: str) -> tuple[Any, inspect.Type | None]:
    """The value and the type one step down; (None, None) where msgspec's path doesn't say which."""
    if isinstance(info, inspect.UnionType):
        info = _member(value, info)
    if key and isinstance(info, inspect.StructType) and isinstance(value, dict):
        field = next((field for field in info.fields if field.encode_name == key), None)
        return value.get(key), field.type if field else None
    if number and isinstance(info, _SEQUENCES) and isinstance(value, list):
        return value[int(number)], info.item_type
    return None, None


def _worded(problem: str, value: Any, info: inspect.Type | None) -> str:
    if isinstance(info, inspect.LiteralType):
        return f"{shown(value)} is not one of {', '.join(str(choice) for choice in info.values)}"
    if isinstance(info, inspect.EnumType):
        return f"{shown(value)} is not one of {', '.join(str(choice.value) for choice in info.cls)}"
    missing = _MISSING.fullmatch(problem)
    if missing is not None:
        return f"{missing['field']} is missing, and it has no default"
    expected = _EXPECTED.fullmatch(problem)
    if expected is not None:
        words = [_WORDS.get(word, word) for word in expected["expected"].split(" | ")]
        got = "" if value is None else f", got {shown(value)}"
        return f"expected {' or '.join(words)}{got}"
    return problem
