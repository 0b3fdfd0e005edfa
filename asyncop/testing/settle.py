"""Bring a built-in kind's object into the form that a server written in Go keeps and answers.

Unknown fields go (and are reported), empty values of optional fields go, what Go always writes appears, wrong types
are refused. Custom kinds don't pass here: `crd.py` prunes and checks them by their own schema.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from asyncop.testing.refusals import bad_request

if TYPE_CHECKING:
    from asyncop.testing.schema import Obj, Type

ABSENT: Any = object()
_GO_ZERO = {"string": "", "bool": False, "int32": 0, "int64": 0, "number": 0}
_ACCEPTS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "bool": bool,
    "int32": int,
    "int64": int,
    "number": (int, float),
    "bytes": str,
    "time": str,
    "microtime": str,
    "quantity": (str, int, float),
    "intOrString": (str, int),
}


def settle(obj: Obj, type_: Type, kind: str, version: str) -> tuple[Obj, list[str]]:
    """The object as kept, and what strict decoding would call out (`unknown field "spec.foo"`).

    Raises:
        RefusedError: 400, a value has another type than its field.
    """
    walk = _Walk(kind, version)
    return walk.struct(obj, type_, ""), walk.unknown


class _Walk:
    def __init__(self, kind: str, version: str) -> None:
        self._kind, self._version = kind, version
        self.unknown: list[str] = []

    def struct(self, value: Any, type_: Type, path: str) -> Obj:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._mismatch(value, type_, path)
        fields, out = type_.fields, {}
        for key, field in fields.items():
            item = value.get(key)
            if item is None and field.is_optional:
                continue
            kept = self._field(item, field, f"{path}.{key}" if path else key)
            if kept is not ABSENT:
                out[key] = kept
        if not value.keys() <= fields.keys():
            self.unknown += [f'unknown field "{path}.{key}"'.replace('".', '"') for key in value if key not in fields]
        return out

    def _field(self, value: Any, field: Type, path: str) -> Any:
        if value is None:
            return self._zero(field, path)
        kept = self._value(value, field, path)
        if field.pointer:
            return kept
        if field.omitempty and field.kind != "struct" and (kept in ("", 0, False) or kept == [] or kept == {}):
            return ABSENT
        if field.omitzero and not kept:
            return ABSENT
        return kept

    def _zero(self, field: Type, path: str) -> Any:
        if field.pointer:
            return None
        if field.kind == "struct":
            return self.struct({}, field, path)
        return _GO_ZERO.get(field.kind)

    def _value(self, value: Any, type_: Type, path: str) -> Any:
        kind = type_.kind
        if kind == "struct":
            return self.struct(value, type_, path)
        if kind == "list":
            return self._list(value, type_, path)
        if kind == "map":
            return self._map(value, type_, path)
        return value if kind == "any" else self._scalar(value, type_, path)

    def _list(self, value: Any, type_: Type, path: str) -> Any:
        if not isinstance(value, list):
            raise self._mismatch(value, type_, path)
        element = type_.element
        assert element is not None
        zero = {} if element.kind == "struct" else _GO_ZERO.get(element.kind)
        return [
            self._value(zero if item is None else item, element, f"{path}[{index}]") for index, item in enumerate(value)
        ]

    def _map(self, value: Any, type_: Type, path: str) -> Any:
        if not isinstance(value, dict):
            raise self._mismatch(value, type_, path)
        element = type_.element
        assert element is not None
        zero = _GO_ZERO.get(element.kind)
        return {key: self._value(zero if item is None else item, element, path) for key, item in value.items()}

    def _scalar(self, value: Any, type_: Type, path: str) -> Any:
        accepted = _ACCEPTS[type_.kind]
        if not isinstance(value, accepted) or (isinstance(value, bool) and type_.kind != "bool"):
            raise self._mismatch(value, type_, path)
        if type_.kind == "quantity":
            return str(value)
        if type_.kind in ("time", "microtime"):
            return self._time(value, type_.kind)
        return value

    def _time(self, value: Any, kind: str) -> str:
        try:
            moment = dt.datetime.fromisoformat(value).astimezone(dt.UTC)
        except ValueError:
            shown = f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
            raise self._refuse(shown) from None
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if kind == "time" else "%Y-%m-%dT%H:%M:%S.%fZ")

    def _mismatch(self, value: Any, type_: Type, path: str) -> Exception:
        found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
        wanted = {"struct": type_.name.replace("core.", "v1."), "list": "[]", "map": "map"}.get(type_.kind, type_.kind)
        plain = "".join(char for char in path if not char.isdigit()).replace("[]", "")
        return self._refuse(
            f"json: cannot unmarshal {found} into Go struct field {self._kind}.{plain} of type {wanted}"
        )

    def _refuse(self, why: str) -> Exception:
        return bad_request(f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}: {why}')
