"""The options of stuckPods: the keys under `controllers.stuckPods`, with the defaults of the chart."""

from __future__ import annotations

from typing import Literal

import asyncop
from asyncop import Duration


class StuckPodsOptions(asyncop.Struct):
    """What is acted on, how sure it must be, and how much at once."""

    mode: Literal["report", "delete"] = "report"
    """`report` says what it would do and does nothing."""
    taints: tuple[str, ...] = ("node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service")
    """Keys of NoExecute taints that make a node suspect; `*` is any."""
    owner_kinds: tuple[str, ...] = ("StatefulSet",)
    """Kinds of controllers whose Pods are acted on; `*` is any, and none."""
    taint_age: Duration = Duration(60)
    """How long the taint must have been there, and the node not Ready."""
    lease_window: Duration = Duration(40)
    """How long the node's Lease must not have changed, by our own clock; four missed renewals of a default kubelet."""
    extra_grace: Duration = Duration(30)
    """What a Pod gets beyond its deletionTimestamp, which already contains its own grace period."""
    startup_freeze: Duration = Duration(60)
    """No deletion during this time after our start and after winning the lead: we may be the side that is cut off."""
    max_unhealthy_nodes: int | str = "50%"
    """No deletion while more nodes than this are not Ready: then the fault is more likely the control plane's."""
    max_deletions_per_minute: int = 10
    """Room for a person to stop a mistake; counted over the last 60 s."""
    namespaces: tuple[str, ...] = ()
    """Empty: those of the operator."""
    selector: str | dict[str, str] = ""
    """Labels of the Pods that are looked at; empty: all."""

    def unhealthy_limit(self, nodes: int) -> float:
        """How many of `nodes` nodes may be unhealthy without opening the breaker."""
        limit = self.max_unhealthy_nodes
        if isinstance(limit, str) and limit.endswith("%"):
            return nodes * float(limit[:-1]) / 100
        return float(limit)

    def check(self) -> None:
        """Raise ConfigError for values that make no sense."""
        try:
            limit = self.unhealthy_limit(100)
        except ValueError:
            limit = -1
        if not 0 <= limit < float("inf"):  # NaN is neither
            raise asyncop.ConfigError(
                f"controllers.stuckPods.maxUnhealthyNodes: {self.max_unhealthy_nodes!r} is neither a count nor a "
                "percentage such as 50%"
            )
        if self.max_deletions_per_minute < 1:
            raise asyncop.ConfigError(
                "controllers.stuckPods.maxDeletionsPerMinute: at least 1; to delete nothing use mode: report"
            )
        if not self.lease_window:
            raise asyncop.ConfigError(
                "controllers.stuckPods.leaseWindow: a Lease that is not watched for some time proves nothing; kubelets "
                "renew theirs every 10s"
            )
        if not self.taints:
            raise asyncop.ConfigError('controllers.stuckPods.taints: name at least one taint key, or "*"')
        try:
            asyncop.label_matcher(self.selector)
        except ValueError as error:
            raise asyncop.ConfigError(f"controllers.stuckPods.selector: {error}") from error
