"""The parts of Pods, Nodes and Leases that the controller reads."""

from __future__ import annotations

from datetime import datetime

import asyncop


class Toleration(asyncop.Struct):
    """One of a Pod's tolerations."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(asyncop.Struct):
    """Where a Pod runs and what it tolerates."""

    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()


class Pod(asyncop.Object, api_version="v1", kind="Pod", plural="pods", namespaced=True):
    """A Pod."""

    spec: PodSpec = PodSpec()


class Taint(asyncop.Struct):
    """One of a Node's taints."""

    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(asyncop.Struct):
    """The taints of a Node."""

    taints: tuple[Taint, ...] = ()


class NodeCondition(asyncop.Struct):
    """One of a Node's conditions."""

    type: str
    status: str
    last_transition_time: datetime | None = None


class NodeStatus(asyncop.Struct):
    """The conditions of a Node."""

    conditions: tuple[NodeCondition, ...] = ()


class Node(asyncop.Object, api_version="v1", kind="Node", plural="nodes", namespaced=False):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> NodeCondition:
        """Its Ready condition; Unknown where it has none yet."""
        conditions = (condition for condition in self.status.conditions if condition.type == "Ready")
        return next(conditions, NodeCondition(type="Ready", status="Unknown"))

    def matching_taints(self, keys: tuple[str, ...]) -> tuple[Taint, ...]:
        """Its NoExecute taints whose key is in `keys`."""
        return tuple(
            taint for taint in self.spec.taints if taint.effect == "NoExecute" and ("*" in keys or taint.key in keys)
        )


class LeaseSpec(asyncop.Struct):
    """Who renewed a Lease, and when by its own clock."""

    renew_time: asyncop.MicroTime | None = None
    holder_identity: str | None = None


class Lease(asyncop.Object, api_version="coordination.k8s.io/v1", kind="Lease", plural="leases", namespaced=True):
    """A node's Lease, in kube-node-lease."""

    spec: LeaseSpec = LeaseSpec()


LEASE_NAMESPACE = "kube-node-lease"
