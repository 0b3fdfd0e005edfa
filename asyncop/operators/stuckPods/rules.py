"""The rules, as pure functions: what can be said of a Pod from the Pod, its Node and the time.

They hold everything but the Lease, which needs two looks a window apart, and the breakers, which need memory.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from asyncop.operators.stuckPods.objects import Node, Pod, Taint, Toleration
    from asyncop.operators.stuckPods.options import StuckPodsOptions

NEVER = "asyncop.dev/force-delete"
MIRROR = "kubernetes.io/config.mirror"


class Reason(enum.StrEnum):
    """Why a Terminating Pod on a suspect node is not (or is) force-deleted: reasons of Events and of a metric."""

    EXCLUDED = "Excluded"
    """Its annotation, owner, kind or tolerations take it out."""
    HAS_FINALIZER = "HasFinalizer"
    """Force deletion would not remove it, and finalizers are somebody's promise."""
    NODE_READY = "NodeReady"
    """The kubelet reports: it will end the Pod itself."""
    TAINT_YOUNG = "TaintYoung"
    """The taint, or the node's silence, is so young that it may still end by itself."""
    GRACE_NOT_OVER = "GraceNotOver"
    """The Pod's own time and the extra grace are not over."""
    LEASE_WATCHED = "LeaseWatched"
    """The Lease has been looked at once; whether it moves is not known yet."""
    LEASE_FRESH = "LeaseFresh"
    """The kubelet renewed its Lease within the window: it lives."""
    LEASE_MISSING = "LeaseMissing"
    """No Lease to judge by; that proves nothing."""
    READ_FAILED = "ReadFailed"
    """Something could not be read; then nothing is deleted."""
    BREAKER_OPEN = "BreakerOpen"
    """Too much is wrong, too much was deleted, or we have only just started."""
    REPORT_ONLY = "ReportOnly"
    """It would be deleted if mode were delete."""
    DELETE_FAILED = "DeleteFailed"
    """The server refused the deletion, or has not answered it."""
    CHANGED = "Changed"
    """Something changed between the last look and the deletion: judged again."""
    DELETED = "ForceDeleted"
    """It has been force-deleted."""


class Refusal(NamedTuple):
    """Why not, and in how many seconds that may be different by time alone (None: only a change helps)."""

    reason: Reason
    message: str
    again: float | None = None


def refusal(
    pod: Pod, node: Node, taints: tuple[Taint, ...], options: StuckPodsOptions, now: datetime
) -> Refusal | None:
    """The first rule that speaks against deleting a Terminating Pod of a node with matching `taints`."""
    return next(_refusals(pod, node, taints, options, now), None)


def _refusals(
    pod: Pod, node: Node, taints: tuple[Taint, ...], options: StuckPodsOptions, now: datetime
) -> Iterator[Refusal]:
    excluded = _exclusion(pod, taints, options)
    if excluded:
        yield Refusal(Reason.EXCLUDED, excluded)
    if pod.metadata.finalizers:
        names = ", ".join(pod.metadata.finalizers)
        yield Refusal(Reason.HAS_FINALIZER, f"it has finalizers ({names}); whoever set them must remove them")
    if node.ready.status == "True":
        yield Refusal(Reason.NODE_READY, f"node {node.metadata.name} is Ready: its kubelet will end the Pod")
    yield from _young(node, taints, options, now)
    yield from _in_grace(pod, options, now)


def _exclusion(pod: Pod, taints: tuple[Taint, ...], options: StuckPodsOptions) -> str:
    if pod.metadata.annotations.get(NEVER) == "never":
        return f"its annotation {NEVER} says never"
    if MIRROR in pod.metadata.annotations:
        return "it is a mirror Pod: only its kubelet can end it"
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "it belongs to a DaemonSet: no other node would start it"
    if "*" not in options.owner_kinds and (owner is None or owner.kind not in options.owner_kinds):
        kind = f"a {owner.kind}" if owner else "no controller"
        return f"it belongs to {kind}; ownerKinds has {', '.join(options.owner_kinds)}"
    for taint in taints:
        if any(_tolerates_for_ever(toleration, taint) for toleration in pod.spec.tolerations):
            return f"it tolerates {taint.key} for ever: it is meant to stay"
    return ""


def _tolerates_for_ever(toleration: Toleration, taint: Taint) -> bool:
    """As the scheduler matches tolerations, for one without tolerationSeconds."""
    if toleration.toleration_seconds is not None or toleration.effect not in ("", taint.effect):
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _young(node: Node, taints: tuple[Taint, ...], options: StuckPodsOptions, now: datetime) -> Iterator[Refusal]:
    """The oldest matching taint counts, but never from before the last change of Ready.

    A taint that somebody keeps on a node for other reasons is old when the node dies; the age would mean nothing then.
    """
    if not options.taint_age:
        return
    turned = node.ready.last_transition_time
    times = [time for taint in taints if (time := taint.time_added or turned)]
    if not times:
        yield Refusal(Reason.TAINT_YOUNG, "neither the taint nor the Ready condition says since when")
        return
    since = max(min(times), turned) if turned else min(times)
    left = options.taint_age - (now - since).total_seconds()
    if left > 0:
        name = node.metadata.name
        what = f"the taint on {name} must be" if since in times else f"the last change of Ready of {name} must be"
        yield Refusal(Reason.TAINT_YOUNG, f"{what} {options.taint_age:g} s old", left)


def _in_grace(pod: Pod, options: StuckPodsOptions, now: datetime) -> Iterator[Refusal]:
    deadline = pod.metadata.deletion_timestamp
    if deadline is None:
        return
    left = options.extra_grace - (now - deadline).total_seconds()
    if left > 0:
        yield Refusal(
            Reason.GRACE_NOT_OVER, f"its grace period ends and {options.extra_grace:g} s more pass first", left
        )
