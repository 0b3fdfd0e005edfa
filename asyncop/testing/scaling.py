"""The scale subresource: the replicas of an object under one form, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncop.testing.objects import Intent, Objects, Target
from asyncop.testing.refusals import bad_request, invalid, invalid_value, modified

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj


def read_scale(objects: Objects, target: Target) -> Obj:
    """The Scale of an object."""
    return _scale(target.kind, objects.read(target))


def write_scale(objects: Objects, target: Target, change: Callable[[Obj], Obj], intent: Intent) -> Obj:
    """Change the Scale, and with it the object; the answer is the Scale as it became.

    Raises:
        RefusedError: 409, the Scale is of another version; 422, replicas can't be.
    """
    wanted: Obj = {}

    def to_object(obj: Obj) -> Obj:
        wanted.update(change(_scale(target.kind, obj)))
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            raise modified(target.who)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int):
            raise bad_request("spec.replicas must be a number")
        if replicas < 0:
            who = target.kind.who(target.name)._replace(group="autoscaling", kind="Scale")
            raise invalid(who, [invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")])
        _put(obj, _paths(target.kind)[0], replicas)
        return obj

    main = Target(target.kind, target.namespace, target.name, "scale")
    return _scale(target.kind, objects.update(main, to_object, intent))


def _paths(kind: Kind) -> tuple[str, str, str]:
    if kind.custom is not None and kind.custom.scale:
        scale = kind.custom.scale
        return scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
    return ".spec.replicas", ".status.replicas", ""


def _scale(kind: Kind, obj: Obj) -> Obj:
    spec_path, status_path, selector_path = _paths(kind)
    source = obj["metadata"]
    metadata = {
        name: source[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in source
    }
    replicas = _get(obj, spec_path)
    spec = {"replicas": replicas} if replicas else {}
    status: Obj = {"replicas": _get(obj, status_path) or 0}
    selector = _get(obj, selector_path) if selector_path else _selector(obj)
    if selector:
        status["selector"] = selector
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _selector(obj: Obj) -> str:
    selector = (obj.get("spec") or {}).get("selector") or {}
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        values = ",".join(sorted(term.get("values") or ()))
        terms.append(
            {
                "In": f"{term['key']} in ({values})",
                "NotIn": f"{term['key']} notin ({values})",
                "Exists": term["key"],
                "DoesNotExist": f"!{term['key']}",
            }[term["operator"]]
        )
    return ",".join(sorted(terms))


def _get(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _put(obj: Obj, path: str, value: Any) -> None:
    *above, last = path.strip(".").split(".")
    for part in above:
        obj = obj.setdefault(part, {})
    obj[last] = value
