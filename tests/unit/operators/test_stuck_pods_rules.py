"""Every rule that keeps a Pod from being force-deleted, by itself."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import asyncop
from asyncop.operators.stuckPods.breakers import Breakers
from asyncop.operators.stuckPods.evidence import LeaseObserver
from asyncop.operators.stuckPods.objects import (
    Lease,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    Taint,
    Toleration,
)
from asyncop.operators.stuckPods.options import StuckPodsOptions
from asyncop.operators.stuckPods.rules import Reason, refusal

NOW = dt.datetime(2026, 12, 1, 12, 0, 0, tzinfo=dt.UTC)
UNREACHABLE = "node.kubernetes.io/unreachable"
OPTIONS = StuckPodsOptions()


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def node(
    ready: str = "Unknown", taint_age: float | None = 600, key: str = UNREACHABLE, since: float | None = None
) -> Node:
    taint = Taint(key=key, effect="NoExecute", time_added=None if taint_age is None else ago(taint_age))
    condition = NodeCondition(type="Ready", status=ready, last_transition_time=None if since is None else ago(since))
    return Node(
        metadata=asyncop.ObjectMeta(name="node1"),
        spec=NodeSpec(taints=(taint,)),
        status=NodeStatus(conditions=(condition,)),
    )


def pod(*tolerations: Toleration, terminating: float = 600, owner: str | None = "StatefulSet", **metadata: Any) -> Pod:
    references = (asyncop.OwnerReference(api_version="apps/v1", kind=owner, name="o", uid="u", controller=True),)
    return Pod(
        metadata=asyncop.ObjectMeta(
            name="web-0",
            namespace="ns",
            uid="uid",
            deletion_timestamp=ago(terminating),
            owner_references=references if owner else (),
            **metadata,
        ),
        spec=PodSpec(node_name="node1", tolerations=tolerations),
    )


def verdict(pod: Pod, node: Node, options: StuckPodsOptions = OPTIONS) -> tuple[str, float | None] | None:
    found = refusal(pod, node, node.matching_taints(options.taints), options, NOW)
    return None if found is None else (found.reason, found.again)


def test_an_old_taint_on_a_node_that_is_not_ready_speaks_for_it() -> None:
    assert verdict(pod(), node()) is None


def test_a_ready_node_is_left_to_its_kubelet_however_old_the_taint() -> None:
    assert verdict(pod(), node(ready="True")) == (Reason.NODE_READY, None)


def test_a_node_that_reports_false_still_counts_as_not_ready() -> None:
    assert verdict(pod(), node(ready="False")) is None


def test_a_young_taint_is_waited_for() -> None:
    assert verdict(pod(), node(taint_age=20)) == (Reason.TAINT_YOUNG, pytest.approx(40))


def test_a_taint_without_time_is_as_old_as_the_change_of_ready() -> None:
    assert verdict(pod(), node(taint_age=None, since=45)) == (Reason.TAINT_YOUNG, pytest.approx(15))
    assert verdict(pod(), node(taint_age=None, since=61)) is None


def test_an_old_taint_counts_from_when_the_node_was_last_ready() -> None:
    assert verdict(pod(), node(taint_age=86400, since=20)) == (Reason.TAINT_YOUNG, pytest.approx(40))
    assert verdict(pod(), node(taint_age=86400, since=60)) is None


def test_a_taint_of_unknown_age_proves_nothing() -> None:
    assert verdict(pod(), node(taint_age=None)) == (Reason.TAINT_YOUNG, None)


def test_the_pods_own_grace_and_the_extra_one_pass_first() -> None:
    assert verdict(pod(terminating=-10), node()) == (Reason.GRACE_NOT_OVER, pytest.approx(40))
    assert verdict(pod(terminating=29), node()) == (Reason.GRACE_NOT_OVER, pytest.approx(1))
    assert verdict(pod(terminating=30), node()) is None


@pytest.mark.parametrize(
    "excluded",
    [
        pod(owner="DaemonSet"),
        pod(owner="ReplicaSet"),
        pod(owner=None),
        pod(annotations={"asyncop.dev/force-delete": "never"}),
        pod(annotations={"kubernetes.io/config.mirror": "hash"}),
        pod(Toleration(operator="Exists")),
        pod(Toleration(key=UNREACHABLE, operator="Exists")),
        pod(Toleration(key=UNREACHABLE, operator="Exists", effect="NoExecute")),
        pod(Toleration(key=UNREACHABLE, operator="Equal", value="")),
    ],
    ids=[
        "DaemonSet",
        "other kind",
        "no owner",
        "never",
        "mirror",
        "tolerates all",
        "tolerates key",
        "and effect",
        "equal",
    ],
)
def test_what_is_excluded_stays_and_is_told_so(excluded: Pod) -> None:
    assert verdict(excluded, node()) == (Reason.EXCLUDED, None)


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(key=UNREACHABLE, operator="Exists", effect="NoExecute", toleration_seconds=300),
        Toleration(key=UNREACHABLE, operator="Exists", effect="NoSchedule"),
        Toleration(key="other", operator="Exists"),
        Toleration(key=UNREACHABLE, operator="Equal", value="x"),
    ],
    ids=["for a time", "other effect", "other key", "other value"],
)
def test_other_tolerations_do_not_exclude(toleration: Toleration) -> None:
    assert verdict(pod(toleration), node()) is None


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        ("ReplicaSet", "it belongs to a ReplicaSet; ownerKinds has StatefulSet"),
        (None, "it belongs to no controller; ownerKinds has StatefulSet"),
    ],
)
def test_an_excluded_owner_is_told_beside_those_that_are_not(owner: str | None, says: str) -> None:
    found = refusal(pod(owner=owner), node(), node().matching_taints(OPTIONS.taints), OPTIONS, NOW)
    assert found is not None
    assert found.message == says


def test_star_takes_any_owner_and_any_taint_but_never_daemon_sets_and_mirror_pods() -> None:
    options = StuckPodsOptions(owner_kinds=("*",), taints=("*",))
    custom = node(key="example.com/maintenance")
    assert verdict(pod(owner=None), custom, options) is None
    assert verdict(pod(owner="ReplicaSet"), custom, options) is None
    assert verdict(pod(owner="DaemonSet"), custom, options) == (Reason.EXCLUDED, None)
    assert verdict(pod(annotations={"kubernetes.io/config.mirror": "h"}), custom, options) == (Reason.EXCLUDED, None)


def test_a_pod_with_finalizers_is_reported() -> None:
    assert verdict(pod(finalizers=("example.com/guard",)), node()) == (Reason.HAS_FINALIZER, None)


def test_only_no_execute_taints_of_the_named_keys_make_a_node_suspect() -> None:
    assert node(key="example.com/other").matching_taints(OPTIONS.taints) == ()
    schedule = Node(spec=NodeSpec(taints=(Taint(key=UNREACHABLE, effect="NoSchedule"),)))
    assert schedule.matching_taints(("*",)) == ()


@pytest.mark.parametrize(
    ("limit", "unhealthy", "is_open"), [("50%", 1, False), ("50%", 2, True), (1, 1, False), (0, 1, True)]
)
def test_the_share_of_unhealthy_nodes_opens_the_breaker_above_its_limit(
    limit: int | str, unhealthy: int, is_open: bool
) -> None:
    breakers = Breakers(StuckPodsOptions(max_unhealthy_nodes=limit, startup_freeze=asyncop.Duration(0)))
    found = breakers.refusal(0.0, unhealthy, 2)
    assert (found is not None) is is_open


def test_nothing_is_deleted_during_the_freeze_after_the_start() -> None:
    breakers = Breakers(OPTIONS)
    assert breakers.refusal(5.0, 0, 2) is not None, "frozen until the start has been told"
    breakers.lead_began(10.0)
    found = breakers.refusal(30.0, 0, 2)
    assert found is not None
    assert found.again == pytest.approx(40)
    assert breakers.refusal(70.0, 0, 2) is None


def test_a_minute_has_room_for_so_many_deletions_and_then_the_oldest_must_age() -> None:
    breakers = Breakers(StuckPodsOptions(max_deletions_per_minute=2, startup_freeze=asyncop.Duration(0)))
    assert breakers.take(0.0)
    assert breakers.take(10.0)
    assert not breakers.take(20.0)
    found = breakers.refusal(20.0, 0, 2)
    assert found is not None
    assert found.again == pytest.approx(40)
    assert breakers.refusal(60.0, 0, 2) is None
    assert breakers.take(60.0)


def test_a_deletion_that_did_not_happen_is_given_back() -> None:
    breakers = Breakers(StuckPodsOptions(max_deletions_per_minute=1, startup_freeze=asyncop.Duration(0)))
    breakers.take(0.0)
    breakers.give_back()
    assert breakers.take(1.0)


def test_a_breaker_that_holds_nobody_back_any_more_is_closed() -> None:
    breakers = Breakers(StuckPodsOptions(max_unhealthy_nodes=0, startup_freeze=asyncop.Duration(0)))
    held = breakers.refusal(0.0, 1, 2)
    assert held is not None
    assert held.again is not None
    breakers.close_unasked(held.again)
    assert breakers.is_open("maxUnhealthyNodes"), "the Pod that it holds back is about to be judged again"
    breakers.close_unasked(held.again + 60)
    assert not breakers.is_open("maxUnhealthyNodes")


def lease(second: int) -> Lease:
    renewed = asyncop.MicroTime.of(NOW + dt.timedelta(seconds=second))
    return Lease(metadata=asyncop.ObjectMeta(name="node1", uid="l"), spec=LeaseSpec(renew_time=renewed))


def look(observer: LeaseObserver, found: Lease, asked: float, took: float = 0.0) -> str | None:
    """What a look says that was asked for at that time and answered `took` seconds later."""
    against = observer.judge("node1", found, asked=asked, answered=asked + took)
    return None if against is None else against.reason


def test_a_lease_is_dead_only_after_a_whole_window_of_our_own_clock_without_a_change() -> None:
    observer = LeaseObserver(40)
    assert look(observer, lease(0), 100.0) is Reason.LEASE_WATCHED
    assert look(observer, lease(0), 139.9) is Reason.LEASE_WATCHED
    assert look(observer, lease(0), 140.0) is None


def test_a_slow_answer_shows_the_lease_as_it_was_when_it_was_asked_for() -> None:
    observer = LeaseObserver(40)
    assert look(observer, lease(0), 100.0, took=10) is Reason.LEASE_WATCHED
    assert look(observer, lease(0), 140.0) is Reason.LEASE_WATCHED, "first seen at 110 for sure"
    assert look(observer, lease(0), 149.0, took=20) is Reason.LEASE_WATCHED, "it may have moved since 149"
    assert look(observer, lease(0), 150.0) is None


def test_a_renewal_starts_the_window_anew() -> None:
    observer = LeaseObserver(40)
    look(observer, lease(0), 100.0)
    assert look(observer, lease(10), 139.0) is Reason.LEASE_FRESH
    assert look(observer, lease(10), 150.0) is Reason.LEASE_WATCHED
    assert look(observer, lease(10), 179.0) is None


def test_a_sign_of_life_makes_the_window_start_anew() -> None:
    observer = LeaseObserver(40)
    look(observer, lease(0), 100.0)
    observer.forget("node1")
    assert look(observer, lease(0), 145.0) is Reason.LEASE_WATCHED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_unhealthy_nodes": "half"}, "maxUnhealthyNodes"),
        ({"max_unhealthy_nodes": "-5%"}, "maxUnhealthyNodes"),
        ({"max_unhealthy_nodes": "nan%"}, "maxUnhealthyNodes"),
        ({"max_unhealthy_nodes": "inf"}, "maxUnhealthyNodes"),
        ({"lease_window": asyncop.Duration(0)}, "leaseWindow"),
        ({"max_deletions_per_minute": 0}, "mode: report"),
        ({"taints": ()}, "taints"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(asyncop.ConfigError, match=message):
        StuckPodsOptions(**options).check()
