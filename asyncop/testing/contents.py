"""What the content of each built-in kind must be, and what of it can't be changed; words of the real server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from asyncop.testing.naming import label_fault
from asyncop.testing.refusals import Fault, invalid_value, required, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.schema import Obj

IMMUTABLE = "field is immutable"
_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def check_content(kind: str, obj: Obj) -> list[Fault]:
    """What is wrong with an object of a built-in kind."""
    check = _CONTENT.get(kind)
    return check(obj) if check else []


def check_content_change(kind: str, old: Obj, new: Obj) -> list[Fault]:
    """What of a built-in kind's object can't become so."""
    check = _CHANGES.get(kind)
    return check(old, new) if check else []


def _check_pod(obj: Obj) -> list[Fault]:
    return _check_pod_spec(obj["spec"], "spec")


def _check_pod_spec(spec: Obj, path: str) -> list[Fault]:
    containers = spec.get("containers")
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    if not containers:
        return [required(f"{path}.containers")]
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}.containers[{index}]"
        name = container.get("name", "")
        if not name:
            faults.append(required(f"{here}.name"))
        elif wrong := label_fault(name):
            faults.append(invalid_value(f"{here}.name", name, wrong))
        if not container.get("image"):
            faults.append(required(f"{here}.image"))
        faults += [
            Fault(f"{here}.volumeMounts[{place}].name", "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"')
            for place, mount in enumerate(container.get("volumeMounts") or ())
            if mount.get("name") not in volumes
        ]
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


def _check_definition(obj: Obj) -> list[Fault]:
    spec, faults = obj["spec"], []
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        faults.append(invalid_value("metadata.name", obj["metadata"].get("name"), text))
    versions = spec.get("versions") or []
    if [version.get("storage") for version in versions].count(True) != 1:
        text = "must have exactly one version marked as storage version"
        faults.append(invalid_value("spec.versions", versions, text))
    faults += [
        required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
        for index, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        faults.append(unsupported("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
    return faults


_CONTENT: dict[str, Callable[[Obj], list[Fault]]] = {
    "Pod": _check_pod,
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"), _check_workload),
    "Job": _check_job,
    "ConfigMap": _check_keys,
    "Secret": _check_keys,
    "Lease": _check_lease,
    "Service": _check_service,
    "CustomResourceDefinition": _check_definition,
}


def _immutable(*paths: str) -> Callable[[Obj, Obj], list[Fault]]:
    def check(old: Obj, new: Obj) -> list[Fault]:
        return [invalid_value(path, _at(new, path), IMMUTABLE) for path in paths if _at(old, path) != _at(new, path)]

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
