"""What happens to an object between a request's body and the checks: its shape, and what an endpoint may not write."""

from __future__ import annotations

import copy
import secrets
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from asyncop.testing.defaults import TEMPLATE_GENERATION, admit_pod, apply_defaults
from asyncop.testing.refusals import RefusedError, Who, bad_request, invalid, invalid_value
from asyncop.testing.settle import settle

if TYPE_CHECKING:
    from asyncop.testing.kinds import Kind
    from asyncop.testing.objects import Intent, Target
    from asyncop.testing.schema import Obj

_CARRIED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_NOT_READY = "node.kubernetes.io/not-ready"
_GENERATED_WITH_METADATA = "annotations"


def shaped(kind: Kind, obj: Obj, intent: Intent) -> Obj:
    """A fresh object in the form that the server keeps.

    Raises:
        RefusedError: 400, the body is another kind's, or strict validation found unknown fields.
    """
    _check_kind(kind, obj)
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
    if kind.custom is not None:
        result, unknown = kind.custom.shaped(obj)
    else:
        result, unknown = _settled(kind, obj, intent)
        apply_defaults(kind.kind, result)
    if unknown and intent.validation == "Strict":
        text = ", ".join(unknown)
        if intent.is_patch:
            raise _bad_patch(obj, f"strict decoding error: {text}")
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {text}'
        )
    if intent.validation == "Warn":
        intent.warnings += unknown
    return result


def _settled(kind: Kind, obj: Obj, intent: Intent) -> tuple[Obj, list[str]]:
    try:
        return settle(obj, kind.type, kind.kind, kind.version)
    except RefusedError as refused:
        if not intent.is_patch:
            raise
        raise _bad_patch(obj, refused.message.partition(f"cannot be handled as a {kind.kind}: ")[2]) from None


def _bad_patch(obj: Obj, why: str) -> RefusedError:
    """A patch whose result can't be: worded as a fault of the patch, whoever's it is."""
    return invalid(Who("", "", ""), [invalid_value("patch", msgspec.json.encode(obj).decode(), why)])


def blank(kind: Kind) -> Obj:
    """What a new object is compared with, to tell what its creator set: an empty one of a built-in kind, or nothing.

    Only its top level is the caller's to change.
    """
    if kind.custom is not None:
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    return dict(_empty(kind))


@cache
def _empty(kind: Kind) -> Obj:
    return settle({}, kind.type, kind.kind, kind.version)[0]


def _check_kind(kind: Kind, obj: Obj) -> None:
    if kind.custom is not None and not (obj.get("apiVersion") and obj.get("kind")):
        missing = "apiVersion" if obj.get("kind") else "Kind"
        text = f"the object provided is unrecognized (must be of type {kind.kind}): Object '{missing}' is missing"
        raise bad_request(text)
    given = (obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind)
    if given == (kind.api_version, kind.kind):
        return
    group, _, version = given[0].rpartition("/")
    found = f"{group}/{version}, Kind={given[1]}"
    wanted = f"{kind.group}/{kind.version}, Kind={kind.kind}"
    if given[0] != kind.api_version:
        raise bad_request(
            f"the API version in the data ({given[0]}) does not match the expected API version ({kind.api_version})"
        )
    raise bad_request(f"{kind.kind} in version {kind.version!r} cannot be handled: {found} is not {wanted}")


def cleaned(kind: Kind, obj: Obj) -> None:
    """Take away from a new object what only the server sets."""
    metadata = obj["metadata"]
    for name in (
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "uid",
        "creationTimestamp",
        "generation",
    ):
        metadata.pop(name, None)
    if kind.generation:
        metadata["generation"] = 1
    if not kind.has_status:
        return
    obj.pop("status", None)
    if kind.custom is None:
        obj["status"] = copy.deepcopy(_empty(kind)["status"])
        apply_defaults(kind.kind, obj)


def admit(kind: Kind, obj: Obj) -> None:
    """What admission adds to a new object."""
    if kind.custom is not None:
        return
    if kind.kind == "Pod":
        admit_pod(obj)
    elif kind.kind == "PersistentVolumeClaim":
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if "kubernetes.io/pvc-protection" not in finalizers:
            finalizers.append("kubernetes.io/pvc-protection")
    elif kind.kind == "Namespace":
        obj["spec"] = {"finalizers": ["kubernetes"]}
    elif kind.kind == "Node":
        taints = obj["spec"].setdefault("taints", [])
        if not any(taint.get("key") == _NOT_READY for taint in taints):
            taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    elif kind.kind == "Service":
        _allocate(obj["spec"])
    elif kind.kind in _GENERATED_SELECTORS:
        _GENERATED_SELECTORS[kind.kind](obj)


def _allocate(spec: Obj) -> None:
    """A cluster IP: any from the range, for there is no network where two of the same could meet."""
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = f"10.96.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _job_selector(obj: Obj) -> None:
    uid, spec = obj["metadata"]["uid"], obj["spec"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    name = obj["metadata"].get("name", "")
    labels |= {"controller-uid": uid, "job-name": name}
    labels |= {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


_GENERATED_SELECTORS = {"Job": _job_selector}


def carry_over(kind: Kind, old: Obj, new: Obj) -> None:
    """Restore the metadata that no update may change."""
    before, after = old["metadata"], new["metadata"]
    for name in _CARRIED:
        if name in before:
            after[name] = before[name]
        else:
            after.pop(name, None)
    after["resourceVersion"] = before["resourceVersion"]
    after["name"] = before["name"]
    if "generateName" in before:
        after.setdefault("generateName", before["generateName"])
    if kind.namespaced:
        after["namespace"] = before["namespace"]


def separate(target: Target, old: Obj, new: Obj) -> None:
    """Keep the main endpoint out of the status and the status endpoint out of the rest; raise the generation."""
    kind = target.kind
    if target.subresource == "status":
        _only_status(kind, old, new)
        return
    if target.subresource == "finalize":
        new["status"] = old["status"]
        return
    if kind.has_status:
        _restore(new, old, "status")
    if kind.custom is None:
        _restore_content(kind, old, new)
    if kind.generation and _is_new_generation(kind, old, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _restore_content(kind: Kind, old: Obj, new: Obj) -> None:
    """What the main endpoint of a built-in kind doesn't write either."""
    if kind.kind == "Namespace":
        new["spec"] = old["spec"]
    elif kind.kind == "DaemonSet":
        annotations = new["metadata"].setdefault("annotations", {})
        generation = int(old["metadata"]["annotations"][TEMPLATE_GENERATION])
        is_changed = old["spec"]["template"] != new["spec"]["template"]
        annotations[TEMPLATE_GENERATION] = str(generation + is_changed)


def _restore(new: Obj, old: Obj, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _only_status(kind: Kind, old: Obj, new: Obj) -> None:
    if kind.custom is not None:
        version = new["metadata"]["resourceVersion"]
        for name in list(new.keys() | old.keys()):
            if name != "status":
                _restore(new, old, name)
        new["metadata"] = {**old["metadata"], "resourceVersion": version}
        return
    for name in ("spec", "data"):
        _restore(new, old, name)
    for name in kind.status_frozen:
        _restore(new["metadata"], old["metadata"], name)


def _is_new_generation(kind: Kind, old: Obj, new: Obj) -> bool:
    if kind.custom is not None:
        ignored = {"metadata", "status"} if kind.has_status else {"metadata"}
        return _encoded(old, ignored) != _encoded(new, ignored)
    if _encoded(old.get("spec"), set()) != _encoded(new.get("spec"), set()):
        return True
    if kind.generation == _GENERATED_WITH_METADATA:
        return bool(old["metadata"].get("annotations") != new["metadata"].get("annotations"))
    return False


def _encoded(obj: Obj | None, ignored: set[str]) -> bytes:
    chosen = {key: value for key, value in (obj or {}).items() if key not in ignored}
    return msgspec.json.encode(chosen, order="deterministic")
