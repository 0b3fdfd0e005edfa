"""The checks that clients meet: names, labels, what is required, what can't be changed. Worded as the real server.

Not all of kube-apiserver's validation, which is about a hundred times as long: an object that passes here may still be
refused by a real server. What is refused here is refused there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from asyncop.testing.kinds import Kind
from asyncop.testing.refusals import Fault, forbidden, invalid, invalid_value, required, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.schema import Obj

_LABEL_TEXT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_TEXT = rf"{_LABEL_TEXT}(\.{_LABEL_TEXT})*"
_LABEL = re.compile(_LABEL_TEXT)
_SUBDOMAIN = re.compile(_SUBDOMAIN_TEXT)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_IMMUTABLE = "field is immutable"


def _subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    if _SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SUBDOMAIN_TEXT}')"
    )


def _label(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if "." in name:
        return "must not contain dots"
    if _LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_TEXT}')"
    )


def _path_segment(name: str) -> str:
    return "" if name not in (".", "..") and "/" not in name and "%" not in name else "may not contain '/'"


_NAMES: dict[str, Callable[[str], str]] = {
    "Namespace": _label,
    "Service": _label,
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), _path_segment),
}


def check_new(kind: Kind, obj: Obj) -> None:
    """Refuse a new object that is invalid.

    Raises:
        RefusedError: 422 with every fault.
    """
    metadata = obj["metadata"]
    faults = [*_check_name(kind, metadata), *_check_metadata(metadata)]
    faults += _check_content(kind, obj)
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
        faults += _check_content(kind, new)
    if not subresource and kind.custom is None and kind.kind in _CHANGES:
        faults += _CHANGES[kind.kind](old, new)
    if faults:
        raise invalid(kind.who(metadata["name"]), faults)


def check_identity(kind: Kind, old: Obj, new: Obj) -> None:
    """Refuse an object under another uid.

    Raises:
        RefusedError: 422.
    """
    uid = new["metadata"].get("uid", old["metadata"]["uid"])
    if uid != old["metadata"]["uid"]:
        raise invalid(kind.who(old["metadata"]["name"]), [invalid_value("metadata.uid", uid, _IMMUTABLE)] * 2)


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
    check = _NAMES.get(kind.kind, _subdomain) if kind.custom is None else _subdomain
    wrong = check(name)
    return [invalid_value("metadata.name", name, wrong)] if wrong else []


def _check_metadata(metadata: Obj) -> list[Fault]:
    faults = []
    for key, value in (metadata.get("labels") or {}).items():
        faults += _check_key("metadata.labels", key)
        if value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
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
    if slash and (wrong := _subdomain(prefix)):
        faults.append(invalid_value(path, key, f"prefix part {wrong}"))
    if not name:
        faults.append(invalid_value(path, key, "name part must be non-empty"))
    if len(name) > 63:
        faults.append(invalid_value(path, key, "name part must be no more than 63 bytes"))
    if not _QUALIFIED.fullmatch(name):
        faults.append(invalid_value(path, key, _NAME_PART))
    return faults


def _check_finalizer(path: str, finalizer: str) -> list[Fault]:
    faults = _check_key(path, finalizer)
    if not faults and "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
        text = "name is neither a standard finalizer name nor is it fully qualified"
        faults.append(invalid_value(path, finalizer, text))
    return faults


# content


def _check_content(kind: Kind, obj: Obj) -> list[Fault]:
    if kind.custom is not None:
        return kind.custom.check(obj)
    check = _CONTENT.get(kind.kind)
    return check(obj) if check else []


def _check_pod(obj: Obj) -> list[Fault]:
    return _check_pod_spec(obj["spec"], "spec")


def _check_pod_spec(spec: Obj, path: str) -> list[Fault]:
    containers = spec.get("containers")
    if not containers:
        return [required(f"{path}.containers")]
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}.containers[{index}]"
        name = container.get("name", "")
        if not name:
            faults.append(required(f"{here}.name"))
        elif wrong := _label(name):
            faults.append(invalid_value(f"{here}.name", name, wrong))
        if not container.get("image"):
            faults.append(required(f"{here}.image"))
        if name and name in seen:
            faults.append(Fault(f"{here}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        seen.add(name)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        choices = ["Always", "Never", "OnFailure"]
        faults.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), choices))
    return faults


def _check_workload(obj: Obj) -> list[Fault]:
    spec, faults = obj["spec"], []
    if spec.get("replicas", 0) < 0:
        text = "must be greater than or equal to 0"
        faults.append(invalid_value("spec.replicas", spec["replicas"], text)._replace())
    selector, template = spec.get("selector"), spec["template"]
    if not selector:
        faults.append(required("spec.selector"))
    elif not (selector.get("matchLabels") or selector.get("matchExpressions")):
        text = f"empty selector is invalid for {obj['kind'].lower()}"
        return [*faults, invalid_value("spec.selector", selector, text)]
    labels = template["metadata"].get("labels")
    if not selector or not (selector.get("matchLabels") or {}).items() <= (labels or {}).items():
        text = "`selector` does not match template `labels`"
        faults.append(invalid_value("spec.template.metadata.labels", labels, text))
    return faults + _check_pod_spec(template["spec"], "spec.template.spec")


def _check_job(obj: Obj) -> list[Fault]:
    faults = _check_pod_spec(obj["spec"]["template"]["spec"], "spec.template.spec")
    policy = obj["spec"]["template"]["spec"].get("restartPolicy")
    if policy == "Always":
        choices = ["OnFailure", "Never"]
        faults.append(
            Fault(
                "spec.template.spec.restartPolicy",
                "FieldValueRequired",
                'Required value: valid values: "OnFailure", "Never"',
            )
            if policy is None
            else unsupported("spec.template.spec.restartPolicy", policy, choices)
        )
    return faults


def _check_keys(obj: Obj) -> list[Fault]:
    return [
        invalid_value(
            f"data[{key}]",
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        )
        for key in obj.get("data") or {}
        if not _KEY.fullmatch(key)
    ]


def _check_lease(obj: Obj) -> list[Fault]:
    seconds = obj["spec"].get("leaseDurationSeconds", 1)
    return [] if seconds > 0 else [invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]


def _check_service(obj: Obj) -> list[Fault]:
    spec = obj["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        return [required("spec.ports")]
    return []


_CONTENT: dict[str, Callable[[Obj], list[Fault]]] = {
    "Pod": _check_pod,
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"), _check_workload),
    "Job": _check_job,
    "ConfigMap": _check_keys,
    "Secret": _check_keys,
    "Lease": _check_lease,
    "Service": _check_service,
}


# changes


def _immutable(*paths: str) -> Callable[[Obj, Obj], list[Fault]]:
    def check(old: Obj, new: Obj) -> list[Fault]:
        return [invalid_value(path, _at(new, path), _IMMUTABLE) for path in paths if _at(old, path) != _at(new, path)]

    return check


def _at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = (obj or {}).get(part)
    return obj


def _sealed(old: Obj, new: Obj) -> list[Fault]:
    if not old.get("immutable"):
        return []
    text = "Forbidden: field is immutable when `immutable` is set"
    faults = [] if new.get("immutable") else [Fault("immutable", "FieldValueForbidden", text)]
    faults += [Fault(f, "FieldValueForbidden", text) for f in ("data", "binaryData") if old.get(f) != new.get(f)]
    return faults


def _secret_change(old: Obj, new: Obj) -> list[Fault]:
    return _sealed(old, new) + _immutable("type")(old, new)


def _pod_change(old: Obj, new: Obj) -> list[Fault]:
    def frozen(spec: Obj) -> Obj:
        free = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
        kept = {key: value for key, value in spec.items() if key not in free}
        for name in ("containers", "initContainers"):
            if name in kept:
                kept[name] = [{**container, "image": ""} for container in kept[name]]
        return kept

    if frozen(old["spec"]) == frozen(new["spec"]):
        return []
    text = (
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [Fault("spec", "FieldValueForbidden", text)]


def _stateful_set_change(old: Obj, new: Obj) -> list[Fault]:
    free = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ]

    def frozen(obj: Obj) -> Obj:
        return {key: value for key, value in obj["spec"].items() if key not in free}

    if frozen(old) == frozen(new):
        return []
    text = (
        "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are "
        "forbidden"
    )
    return [Fault("spec", "FieldValueForbidden", text)]


def _role_reference_change(old: Obj, new: Obj) -> list[Fault]:
    if old["roleRef"] == new["roleRef"]:
        return []
    return [invalid_value("roleRef", new["roleRef"], "cannot change roleRef")]


_CHANGES: dict[str, Callable[[Obj, Obj], list[Fault]]] = {
    "Pod": _pod_change,
    "Deployment": _immutable("spec.selector"),
    "ReplicaSet": _immutable("spec.selector"),
    "DaemonSet": _immutable("spec.selector"),
    "StatefulSet": _stateful_set_change,
    "Job": _immutable("spec.completions", "spec.selector", "spec.template"),
    "ConfigMap": _sealed,
    "Secret": _secret_change,
    "RoleBinding": _role_reference_change,
    "ClusterRoleBinding": _role_reference_change,
}


def refuse_namespace_deletion(name: str) -> None:
    """Some namespaces can't be deleted."""
    if name in ("default", "kube-system", "kube-public"):
        kind = Kind("", "v1", "Namespace", "namespaces", "namespace", type=None)  # type: ignore[arg-type]
        raise forbidden(kind.who(name), "this namespace may not be deleted")
