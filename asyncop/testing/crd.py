"""Custom kinds: what a definition's structural schema means for objects: pruning, defaults, checks, types.

Not understood are validation rules in CEL, conversion webhooks, `oneOf` and its siblings, and `format`: objects that a
real server refuses for those are accepted here.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

from asyncop.testing.kinds import Kind
from asyncop.testing.refusals import Fault, invalid_value, required, shown, unsupported
from asyncop.testing.schema import ANY, Obj, Type, builtin
from asyncop.testing.settle import settle

_META = builtin("meta.ObjectMeta")
_JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True, slots=True, eq=False)
class CustomVersion:
    """One version of a custom kind."""

    storage_version: str
    schema: Obj
    type: Type
    scale: Obj | None = None

    def shaped(self, obj: Obj) -> tuple[Obj, list[str]]:
        """A fresh object, pruned and defaulted, and what was pruned (`unknown field "spec.foo"`)."""
        obj = dict(obj)
        unknown: list[str] = []
        metadata, strange = settle(obj.pop("metadata", None) or {}, _META, "ObjectMeta", "v1")
        unknown += [text.replace('"', '"metadata.', 1) for text in strange]
        head = {"apiVersion": obj.pop("apiVersion"), "kind": obj.pop("kind"), "metadata": metadata}
        content = _prune(self.schema, obj, "", unknown)
        content = _default(self.schema, content)
        return {**head, **content}, sorted(unknown)

    def check(self, obj: Obj) -> list[Fault]:
        """What the schema finds wrong."""
        content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
        faults: list[Fault] = []
        _check(self.schema, content, "", faults)
        return faults


def custom_kinds(definition: Obj) -> list[Kind]:
    """The kinds that a definition serves, one a version."""
    spec = definition["spec"]
    names = spec["names"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [_custom_kind(spec, names, version, storage) for version in spec["versions"] if version.get("served")]


def _custom_kind(spec: Obj, names: Obj, version: Obj, storage: str) -> Kind:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
    below = version.get("subresources") or {}
    kind_type = _type(schema)
    if kind_type.kind == "any":
        kind_type = Type("struct", own_fields={}, element=ANY, sharing="granular")
    kind_type.own_fields = {**(kind_type.own_fields or {}), "metadata": _META}
    kind_type.own_fields |= {"apiVersion": Type("string"), "kind": Type("string")}
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        type=kind_type,
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in below,
        has_scale="scale" in below,
        generation="spec",
        unconditional=False,
        fields=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        custom=CustomVersion(storage, schema, kind_type, below.get("scale")),
    )


def _type(schema: Obj) -> Type:
    """The schema as the form that ownership and merging know."""
    default = schema.get("default")
    if schema.get("type") == "array":
        sharing = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        found = Type("list", element=_type(schema.get("items") or {}), sharing=sharing, keys=keys)
    elif schema.get("properties"):
        fields = {name: _type(below) for name, below in schema["properties"].items()}
        found = Type("struct", own_fields=fields, sharing=schema.get("x-kubernetes-map-type", "granular"))
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource"):
            found.element = ANY
    elif isinstance(schema.get("additionalProperties"), dict):
        element = _type(schema["additionalProperties"])
        found = Type("map", element=element, sharing=schema.get("x-kubernetes-map-type", "granular"))
    elif schema.get("type") in ("string", "integer", "number", "boolean"):
        found = Type(schema["type"])
    else:
        return ANY
    if default is not None:
        found.default = default
    return found


def _prune(schema: Obj, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        return _prune_object(schema, value, path, unknown)
    if isinstance(value, list) and "items" in schema:
        return [_prune(schema["items"], item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _prune_object(schema: Obj, value: Obj, path: str, unknown: list[str]) -> Obj:
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or more is True
    if schema.get("x-kubernetes-embedded-resource"):
        known = {"apiVersion": {}, "kind": {}, "metadata": {"x-kubernetes-preserve-unknown-fields": True}, **known}
    result = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        if key in known:
            result[key] = _prune(known[key], item, here, unknown)
        elif isinstance(more, dict):
            result[key] = _prune(more, item, here, unknown)
        elif keeps:
            result[key] = item
        else:
            unknown.append(f'unknown field "{here}"')
    return result


def _default(schema: Obj, value: Any) -> Any:
    if isinstance(value, dict):
        known, more = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, below in known.items():
            if "default" in below and (key not in value or (value[key] is None and not below.get("nullable"))):
                value[key] = copy.deepcopy(below["default"])
            if value.get(key) is None and key in value and not below.get("nullable"):
                del value[key]
            elif key in value:
                value[key] = _default(below, value[key])
        if isinstance(more, dict):
            return {key: item if key in known else _default(more, item) for key, item in value.items()}
    elif isinstance(value, list) and "items" in schema:
        return [_default(schema["items"], item) for item in value]
    return value


def _check(schema: Obj, value: Any, path: str, faults: list[Fault]) -> None:
    if value is None and schema.get("nullable"):
        return
    if not _has_type(schema, value):
        found = "null" if value is None else _JSON_TYPES[type(value)]
        wanted = schema.get("type", "integer,string")
        text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        faults.append(Fault(path or "<nil>", "FieldValueTypeInvalid", text))
        if found == "number":
            text = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
            faults.append(Fault("<nil>", "FieldValueInvalid", text))
        return
    if isinstance(value, dict):
        _check_object(schema, value, path, faults)
    elif isinstance(value, list):
        _check_list(schema, value, path, faults)
    elif isinstance(value, str):
        _check_string(schema, value, path, faults)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(schema, value, path, faults)
    if "enum" in schema and value not in schema["enum"]:
        faults.append(unsupported(path, value, [str(choice) for choice in schema["enum"]]))


def _has_type(schema: Obj, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if not wanted:
        return True
    found = _JSON_TYPES.get(type(value), "null")
    whole = found == "number" and wanted == "integer" and value == int(value)
    return found == wanted or (found == "integer" and wanted == "number") or whole


def _check_object(schema: Obj, value: Obj, path: str, faults: list[Fault]) -> None:
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    faults += [required(_join(path, name)) for name in schema.get("required") or () if name not in value]
    for key, item in value.items():
        if key in known:
            _check(known[key], item, _join(path, key), faults)
        elif isinstance(more, dict):
            _check(more, item, _join(path, key), faults)
    size = len(value)
    if size < schema.get("minProperties", 0):
        text = f"{path} in body should have at least {schema['minProperties']} properties"
        faults.append(Fault(path, "FieldValueInvalid", f"Invalid value: {size}: {text}"))
    if size > schema.get("maxProperties", size):
        text = f"Too many: {size}: must have at most {schema['maxProperties']} items"
        faults.append(Fault(path, "FieldValueTooMany", text))


def _check_list(schema: Obj, value: list[Any], path: str, faults: list[Fault]) -> None:
    for index, item in enumerate(value):
        _check(schema.get("items") or {}, item, f"{path}[{index}]", faults)
    size = len(value)
    if size > schema.get("maxItems", size):
        text = f"Too many: {size}: must have at most {schema['maxItems']} items"
        faults.append(Fault(path, "FieldValueTooMany", text))
    if size < schema.get("minItems", 0):
        text = f"{path} in body should have at least {schema['minItems']} items"
        faults.append(Fault(path, "FieldValueInvalid", f"Invalid value: {size}: {text}"))
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    for index, item in enumerate(value):
        if schema.get("x-kubernetes-list-type") not in ("set", "map"):
            break
        identity = {key: item.get(key) for key in keys} if keys else item
        if identity in seen:
            faults.append(Fault(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown(identity)}"))
        seen.append(identity)


def _check_string(schema: Obj, value: str, path: str, faults: list[Fault]) -> None:
    size = len(value)
    if size > schema.get("maxLength", size):
        text = f"Too long: may not be more than {schema['maxLength']} bytes"
        faults.append(Fault(path, "FieldValueTooLong", text))
    elif size < schema.get("minLength", 0):
        text = f"{path} in body should be at least {schema['minLength']} chars long"
        faults.append(invalid_value(path, value, text))
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        faults.append(invalid_value(path, value, f"{path} in body should match '{schema['pattern']}'"))


def _check_number(schema: Obj, value: float, path: str, faults: list[Fault]) -> None:
    if "minimum" in schema:
        low, exclusive = schema["minimum"], schema.get("exclusiveMinimum")
        if value < low or (exclusive and value == low):
            text = f"{path} in body should be greater than {'' if exclusive else 'or equal to '}{low}"
            faults.append(invalid_value(path, value, text))
    if "maximum" in schema:
        high, exclusive = schema["maximum"], schema.get("exclusiveMaximum")
        if value > high or (exclusive and value == high):
            text = f"{path} in body should be less than {'' if exclusive else 'or equal to '}{high}"
            faults.append(invalid_value(path, value, text))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
