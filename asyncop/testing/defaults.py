"""The values that kube-apiserver fills in where a built-in kind's author left none, by defaulting and admission."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from asyncop.testing.schema import Obj

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def apply_defaults(kind: str, obj: Obj) -> None:
    """Default in place; what has a value keeps it."""
    default = _DEFAULTS.get(kind)
    if default:
        default(obj)


def _set(target: Obj, **values: Any) -> None:
    for key, value in values.items():
        target.setdefault(key, value)


def _containers(spec: Obj) -> Iterator[Obj]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _pod_spec(spec: Obj) -> None:
    _set(spec, restartPolicy="Always", terminationGracePeriodSeconds=30, dnsPolicy="ClusterFirst")
    _set(spec, securityContext={}, schedulerName="default-scheduler")
    if spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in _containers(spec):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _volume(volume)


def _container(container: Obj, *, host_network: bool) -> None:
    _set(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    _set(container, imagePullPolicy="Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
        if host_network and port.get("containerPort"):
            _set(port, hostPort=port["containerPort"])
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _probe(container[probe])
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _set(reference, apiVersion="v1")
    resources = container.get("resources") or {}
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)


def _probe(probe: Obj) -> None:
    _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _set(probe["httpGet"], path="/", scheme="HTTP")
    if "grpc" in probe:
        _set(probe["grpc"], service="")


def _volume(volume: Obj) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            _set(volume[source], defaultMode=420)
    if "hostPath" in volume:
        _set(volume["hostPath"], type="")


def _pod(obj: Obj) -> None:
    spec = obj["spec"]
    _set(spec, enableServiceLinks=True)
    _pod_spec(spec)


def admit_pod(obj: Obj) -> None:
    """What admission adds to a new Pod: priority, and tolerations of 300 s for nodes that are gone."""
    spec = obj["spec"]
    _set(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATED:
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    obj["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _quality(spec: Obj) -> str:
    amounts = [container.get("resources") or {} for container in _containers(spec)]
    named = ("cpu", "memory")
    chosen = [{**(a.get("requests") or {}), **(a.get("limits") or {})} for a in amounts]
    if not any(amount.keys() & set(named) for amount in chosen):
        return "BestEffort"
    equal = all(
        (a.get("limits") or {}).get(n) and (a.get("requests") or {}).get(n) == a["limits"][n]
        for a in amounts
        for n in named
    )
    return "Guaranteed" if equal else "Burstable"


def _template(obj: Obj) -> None:
    _pod_spec(obj["spec"]["template"]["spec"])


def _deployment(obj: Obj) -> None:
    spec = obj["spec"]
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec["strategy"]
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
    _template(obj)


def _stateful_set(obj: Obj) -> None:
    spec = obj["spec"]
    _set(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    _set(spec.setdefault("updateStrategy", {}), type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _set(spec["updateStrategy"].setdefault("rollingUpdate", {}), partition=0)
    _set(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}), whenDeleted="Retain", whenScaled="Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        _set(claim, kind="PersistentVolumeClaim", apiVersion="v1")
        _set(claim["spec"], volumeMode="Filesystem")
        _set(claim["status"], phase="Pending")
    _template(obj)


def _daemon_set(obj: Obj) -> None:
    spec = obj["spec"]
    _set(spec, revisionHistoryLimit=10)
    _set(obj["metadata"].setdefault("annotations", {}), **{TEMPLATE_GENERATION: "1"})
    _set(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _set(spec["updateStrategy"].setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)
    _template(obj)


def _replica_set(obj: Obj) -> None:
    _set(obj["spec"], replicas=1)
    _template(obj)


def _job(obj: Obj) -> None:
    spec = obj["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        _set(spec, completions=1)
    _set(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    _set(spec, podReplacementPolicy="TerminatingOrFailed", manualSelector=False)
    _template(obj)


def _service(obj: Obj) -> None:
    spec = obj["spec"]
    _set(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _set(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _set(spec, allocateLoadBalancerNodePorts=True)
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")


def _claim(obj: Obj) -> None:
    _set(obj["spec"], volumeMode="Filesystem")
    _set(obj["status"], phase="Pending")


def _namespace(obj: Obj) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    _set(obj["status"], phase="Active")


def _node(obj: Obj) -> None:
    spec = obj["spec"]
    if spec.get("podCIDR"):
        _set(spec, podCIDRs=[spec["podCIDR"]])


def _secret(obj: Obj) -> None:
    _set(obj, type="Opaque")
    for key, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _role_binding(obj: Obj) -> None:
    _set(obj["roleRef"], apiGroup="rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            _set(subject, apiGroup="rbac.authorization.k8s.io")


def _definition(obj: Obj) -> None:
    spec = obj["spec"]
    names = spec["names"]
    _set(names, singular=names.get("kind", "").lower(), listKind=names.get("kind", "") + "List")
    _set(spec, conversion={"strategy": "None"})


_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "Pod": _pod,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "ReplicaSet": _replica_set,
    "Job": _job,
    "Service": _service,
    "PersistentVolumeClaim": _claim,
    "Namespace": _namespace,
    "Node": _node,
    "Secret": _secret,
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
    "CustomResourceDefinition": _definition,
}
