"""JSON patch (RFC 6902), merge patch (RFC 7386) and Kubernetes' strategic merge patch.

Each takes the object and the patch and returns a new object; neither argument is changed. What the patch may not do
(names, versions, immutable fields) is for the update that follows.
"""

from __future__ import annotations

import copy
from typing import Any

from asyncop.testing.refusals import RefusedError, bad_request
from asyncop.testing.schema import Obj, Type, child

_MISSING: Any = object()


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# JSON patch


def json_patch(target: Obj, operations: Any) -> Obj:
    """All operations in order.

    Raises:
        RefusedError: 400 for what is no patch, 422 for an operation that doesn't fit the object.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result: Any = copy.deepcopy(target)
    for operation in operations:
        result = _operate(result, operation)
    return result  # type: ignore[no-any-return]


def _unprocessable() -> RefusedError:
    """The real server doesn't say which operation it was, nor why."""
    return RefusedError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def _operate(target: Any, operation: Obj) -> Any:
    kind, path = operation.get("op"), operation.get("path", "")
    if kind == "add":
        return _set(target, path, operation.get("value"), replacing=False)
    if kind == "replace":
        return _set(target, path, operation.get("value"), replacing=True)
    if kind == "remove":
        return _remove(target, path)
    if kind == "test":
        found = _get(target, path)
        if (None if found is _MISSING else found) != operation.get("value"):
            raise _unprocessable()
        return target
    if kind in ("move", "copy"):
        value = _get(target, operation.get("from", ""))
        if kind == "move":
            if value is _MISSING:
                raise _unprocessable()
            target = _remove(target, operation["from"])
        return _set(target, path, None if value is _MISSING else copy.deepcopy(value), replacing=False)
    raise _unprocessable()


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _get(target: Any, path: str) -> Any:
    for step in _steps(path):
        if isinstance(target, dict):
            target = target.get(step, _MISSING)
        elif isinstance(target, list) and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        else:
            return _MISSING
    return target


def _parent(target: Any, path: str) -> tuple[Any, str]:
    *above, last = _steps(path)
    for step in above:
        target = _get(target, "/" + step.replace("~", "~0").replace("/", "~1"))
        if not isinstance(target, dict | list):
            raise _unprocessable()
    return target, last


def _set(target: Any, path: str, value: Any, *, replacing: bool) -> Any:
    if not path:
        return value
    parent, last = _parent(target, path)
    if isinstance(parent, dict):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif not last.isdigit() or int(last) > len(parent):
        raise _unprocessable()
    elif replacing:
        parent[int(last)] = value
    else:
        parent.insert(int(last), value)
    return target


def _remove(target: Any, path: str) -> Any:
    parent, last = _parent(target, path)
    if _get(parent, "/" + last.replace("~", "~0").replace("/", "~1")) is _MISSING:
        raise _unprocessable()
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[int(last)]
    return target


# Strategic merge patch


def strategic_patch(type_: Type, target: Any, patch: Obj) -> Any:
    """Like a merge patch, but lists with a merge key are merged by it; knows the `$patch` family of directives."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$"):
            _direct(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            order = patch.get(f"$setElementOrder/{key}")
            result[key] = _strategic_value(child(type_, key), result.get(key), value, order)
    return result


def _direct(result: Obj, directive: str, values: Any) -> None:
    action, _, key = directive.partition("/")
    if action == "$deleteFromPrimitiveList" and key in result:
        result[key] = [item for item in result[key] if item not in values]


def _strategic_value(type_: Type, before: Any, value: Any, order: list[Any] | None) -> Any:
    if isinstance(value, dict):
        return strategic_patch(type_, before, value)
    if not isinstance(value, list) or type_.merge is None:
        return value
    known = list(before or ())
    if type_.merge:
        merged = _strategic_list(type_, known, value)
    else:
        merged = known + [item for item in value if item not in known]
    key = type_.merge
    named = [item[key] if key and isinstance(item, dict) else item for item in (value if order is None else order)]
    return _ordered(merged, [_identity(item, key) for item in known], named, key)


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key else item


def _ordered(items: list[Any], before: list[Any], named: list[Any], key: str) -> list[Any]:
    """What the patch names in its order; the rest keep their places among them, behind what is new."""

    def place(item: Any) -> int:
        identity = _identity(item, key)
        return before.index(identity) if identity in before else -1

    patched = sorted((i for i in items if _identity(i, key) in named), key=lambda i: named.index(_identity(i, key)))
    rest = [item for item in items if _identity(item, key) not in named]
    result: list[Any] = []
    while patched or rest:
        takes_rest = rest and (not patched or place(rest[0]) < place(patched[0]))
        result.append(rest.pop(0) if takes_rest else patched.pop(0))
    return result


def _strategic_list(type_: Type, before: list[Any], patches: list[Any]) -> list[Any]:
    below, key = type_.element or type_, type_.merge or ""
    if any(item.get("$patch") == "replace" for item in patches):
        return [item for item in patches if "$patch" not in item]
    for item in patches:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        index = next((i for i, old in enumerate(before) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            before = [old for old in before if old.get(key) != item[key]]
        elif index is None:
            before = [*before, strategic_patch(below, {}, item)]
        else:
            before = [*before[:index], strategic_patch(below, before[index], item), *before[index + 1 :]]
    return before
