"""The checks that clients meet: names, labels, what is required, what can't be changed. Worded as the real server.

Not all of kube-apiserver's validation, which is about a hundred times as long: an object that passes here may still be
refused by a real server. What is refused here is refused there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncop.testing.contents import IMMUTABLE, check_content, check_content_change
from asyncop.testing.kinds import Kind
from asyncop.testing.naming import QUALIFIED, label_fault, path_segment_fault, subdomain_fault
from asyncop.testing.refusals import Fault, forbidden, invalid, invalid_value, required

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.schema import Obj

_NAMES: dict[str, Callable[[str], str]] = {
    "Namespace": label_fault,
    "Service": label_fault,
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), path_segment_fault),
}


def check_new(kind: Kind, obj: Obj) -> None:
    """Refuse a new object that is invalid.

    Raises:
        RefusedError: 422 with every fault.
    """
    metadata = obj["metadata"]
    faults = [*_check_name(kind, metadata), *_check_metadata(metadata)]
    faults += _content(kind, obj)
    if faults:
        raise invalid(kind.who(metadata.get("name", "")), faults)


def check_change(kind: Kind, subresource: str, old: Obj, new: Obj) -> None:
    """Refuse a change that is invalid.

    Raises:
        RefusedError: 422 with every fault.
    """
    metadata = new["metadata"]
    faults = _check_metadata(metadata)
    if metadata.get("deletionTimestamp"):
        added = set(metadata.get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            names = ", ".join(f'"{name}"' for name in sorted(added))
            text = "no new finalizers can be added if the object is being deleted, found new finalizers "
            text += f"[]string{{{names}}}"
            faults += [Fault("metadata.finalizers", "FieldValueForbidden", f"Forbidden: {text}")] * 2
    if not subresource or kind.custom is not None:
        faults += _content(kind, new)
    if not subresource and kind.custom is None:
        faults += check_content_change(kind.kind, old, new)
    if faults:
        raise invalid(kind.who(metadata["name"]), faults)


def check_identity(kind: Kind, old: Obj, new: Obj) -> None:
    """Refuse an object under another uid.

    Raises:
        RefusedError: 422.
    """
    uid = new["metadata"].get("uid", old["metadata"]["uid"])
    if uid != old["metadata"]["uid"]:
        raise invalid(kind.who(old["metadata"]["name"]), [invalid_value("metadata.uid", uid, IMMUTABLE)] * 2)


def refuse_unconditional(kind: Kind, name: str) -> None:
    """A PUT without resourceVersion, where one is needed."""
    if not kind.unconditional:
        text = "Invalid value: 0: must be specified for an update"
        fault = Fault("metadata.resourceVersion", "FieldValueInvalid", text)
        raise invalid(kind.who(name)._replace(kind=kind.plural), [fault])


def is_finished(kind: Kind, obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.kind == "Namespace" and kind.custom is None:
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


# metadata


def _check_name(kind: Kind, metadata: Obj) -> list[Fault]:
    name = metadata.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    check = _NAMES.get(kind.kind, subdomain_fault) if kind.custom is None else subdomain_fault
    wrong = check(name)
    return [invalid_value("metadata.name", name, wrong)] if wrong else []


def _check_metadata(metadata: Obj) -> list[Fault]:
    faults = []
    for key, value in (metadata.get("labels") or {}).items():
        faults += _check_key("metadata.labels", key)
        if value and (len(value) > 63 or not QUALIFIED.fullmatch(value)):
            faults.append(invalid_value("metadata.labels", value, _LABEL_VALUE))
    for key in metadata.get("annotations") or {}:
        faults += _check_key("metadata.annotations", key.lower())
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        faults += [
            required_text(f"metadata.ownerReferences[{index}].{name}", owner.get(name, ""))
            for name in ("kind", "name", "uid")
            if not owner.get(name)
        ]
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        faults += _check_finalizer(f"metadata.finalizers[{index}]", finalizer)
    return faults


_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def required_text(path: str, value: str) -> Fault:
    """An owner reference's empty part."""
    return invalid_value(path, value, "must not be empty")


def _check_key(path: str, key: str) -> list[Fault]:
    prefix, slash, name = key.rpartition("/")
    faults = []
    if slash and (wrong := subdomain_fault(prefix)):
        faults.append(invalid_value(path, key, f"prefix part {wrong}"))
    if not name:
        faults.append(invalid_value(path, key, "name part must be non-empty"))
    if len(name) > 63:
        faults.append(invalid_value(path, key, "name part must be no more than 63 bytes"))
    if not QUALIFIED.fullmatch(name):
        faults.append(invalid_value(path, key, _NAME_PART))
    return faults


def _check_finalizer(path: str, finalizer: str) -> list[Fault]:
    faults = _check_key(path, finalizer)
    if not faults and "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
        text = "name is neither a standard finalizer name nor is it fully qualified"
        faults.append(invalid_value(path, finalizer, text))
    return faults


def _content(kind: Kind, obj: Obj) -> list[Fault]:
    return check_content(kind.kind, obj) if kind.custom is None else kind.custom.check(obj)


def refuse_namespace_deletion(name: str) -> None:
    """Some namespaces can't be deleted."""
    if name in ("default", "kube-system", "kube-public"):
        kind = Kind("", "v1", "Namespace", "namespaces", "namespace", type=None)  # type: ignore[arg-type]
        raise forbidden(kind.who(name), "this namespace may not be deleted")
