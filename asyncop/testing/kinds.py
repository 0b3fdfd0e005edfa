"""The table of kinds that the server has from the start, and what sets one kind apart from another for clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncop.testing.refusals import Who
from asyncop.testing.schema import Type, builtin

if TYPE_CHECKING:
    from asyncop.testing.crd import CustomVersion

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_WRITE = ("get", "patch", "update")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One resource as it is served at one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    type: Type
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    has_status: bool = False
    has_scale: bool = False
    generation: str = ""
    """`spec`: rises when the spec changes; `annotations`: also when those do; empty: there is none."""
    unconditional: bool = True
    """Whether a PUT may leave the resourceVersion out."""
    fields: tuple[str, ...] = ()
    """What field selectors may name, besides name and namespace."""
    status_frozen: tuple[str, ...] = ()
    """Metadata that a write of the status leaves as it was."""
    custom: CustomVersion | None = None
    """Of a kind that was POSTed as a definition."""

    @property
    def api_version(self) -> str:
        """As objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods`, `deployments.apps`: also the name of its collection."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        """The path its URLs start with."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def who(self, name: str = "") -> Who:
        """What refusals call an object of this kind."""
        return Who(self.group, self.plural, self.kind, name)

    def key(self, namespace: str, name: str) -> str:
        """Under which its collection keeps an object."""
        return f"{namespace}/{name}" if self.namespaced else name


def _kind(group: str, kind: str, shorts: str = "", plural: str = "", **more: Any) -> Kind:
    package = {"rbac.authorization.k8s.io": "rbac", "coordination.k8s.io": "coordination", "": "core"}.get(
        group, group.partition(".")[0]
    )
    singular = kind.lower()
    return Kind(
        group=group,
        version="v1",
        kind=kind,
        plural=plural or f"{singular}s",
        singular=singular,
        type=builtin(f"{package}.{kind}"),
        short_names=tuple(shorts.split()),
        **more,
    )


_POD_FIELDS = (
    "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase "
    "status.podIP status.nominatedNodeName"
)
_EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion "
    "involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type"
)
_RBAC = "rbac.authorization.k8s.io"
_WORKLOAD: dict[str, Any] = {"categories": ("all",), "has_status": True}

KINDS = (
    _kind(
        "",
        "Namespace",
        "ns",
        namespaced=False,
        has_status=True,
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        fields=("status.phase",),
    ),
    _kind("", "Node", "no", namespaced=False, has_status=True, fields=("spec.unschedulable",)),
    _kind(
        "",
        "Pod",
        "po",
        **_WORKLOAD,
        generation="spec",
        fields=tuple(_POD_FIELDS.split()),
        status_frozen=("ownerReferences",),
    ),
    _kind("", "Service", "svc", **_WORKLOAD, fields=("spec.clusterIP", "spec.type")),
    _kind("", "ConfigMap", "cm"),
    _kind("", "Secret", fields=("type",)),
    _kind("", "Event", "ev", fields=tuple(_EVENT_FIELDS.split())),
    _kind("events.k8s.io", "Event", "ev", fields=tuple(_EVENT_FIELDS.replace("involvedObject", "regarding").split())),
    _kind("", "ServiceAccount", "sa"),
    _kind("", "PersistentVolumeClaim", "pvc", has_status=True),
    _kind("coordination.k8s.io", "Lease", unconditional=False),
    _kind(
        "apps", "Deployment", "deploy", **_WORKLOAD, has_scale=True, generation="annotations", status_frozen=("labels",)
    ),
    _kind("apps", "StatefulSet", "sts", **_WORKLOAD, has_scale=True, generation="spec"),
    _kind("apps", "DaemonSet", "ds", **_WORKLOAD, generation="spec"),
    _kind("apps", "ReplicaSet", "rs", **_WORKLOAD, has_scale=True, generation="spec", fields=("status.replicas",)),
    _kind("batch", "Job", **_WORKLOAD, generation="spec", fields=("status.successful",)),
    _kind("policy", "PodDisruptionBudget", "pdb", has_status=True, generation="spec", unconditional=False),
    _kind(_RBAC, "Role"),
    _kind(_RBAC, "RoleBinding"),
    _kind(_RBAC, "ClusterRole", namespaced=False),
    _kind(_RBAC, "ClusterRoleBinding", namespaced=False),
    _kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "crd crds",
        namespaced=False,
        categories=("api-extensions",),
        has_status=True,
        generation="spec",
        unconditional=False,
    ),
)

SELF_REVIEW = _kind("authorization.k8s.io", "SelfSubjectAccessReview", namespaced=False, verbs=("create",))
"""Answered, never kept."""
