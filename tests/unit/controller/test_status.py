"""What a run stages is merged into what is there, and only what differs is written."""

from __future__ import annotations

from typing import Any

import pytest

from asyncop.controller.status import StagedStatus

THEN, NOW = "2026-01-01T00:00:00Z", "2026-12-01T00:00:00Z"


def condition(kind: str, status: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": THEN, **more}


def staged(kind: str = "Ready", status: str = "True", reason: str = "R", message: str = "") -> StagedStatus:
    status_of_run = StagedStatus()
    status_of_run.set_condition(kind, status, reason, message)
    return status_of_run


def test_what_is_said_already_is_not_written() -> None:
    present = {"phase": "Ready", "conditions": [condition("Other", "False"), condition("Ready", "True")]}
    run = staged()
    run.set_fields({"phase": "Ready"})
    assert run.patch(present, 0, NOW) == {}


def test_only_fields_that_differ_are_written_under_their_names_on_the_wire() -> None:
    run = StagedStatus()
    run.set_fields({"phase": "Ready", "ready_replicas": 3, "pod_ip": "10.0.0.1"})
    assert run.patch({"phase": "Ready", "readyReplicas": 2}, 0, NOW) == {"readyReplicas": 3, "podIP": "10.0.0.1"}


def test_a_change_of_status_is_a_transition_and_a_change_of_reason_is_none() -> None:
    present = {"conditions": [condition("Ready", "False")]}
    [changed] = staged(status="True").patch(present, 0, NOW)["conditions"]
    assert changed["lastTransitionTime"] == NOW
    [changed] = staged(status="False", reason="Other").patch(present, 0, NOW)["conditions"]
    assert (changed["reason"], changed["lastTransitionTime"]) == ("Other", THEN)


def test_conditions_of_others_stay_as_they_are_and_in_their_place() -> None:
    others = condition("Other", "True", extra="kept")
    patch = staged().patch({"conditions": [others, condition("Ready", "False")]}, 0, NOW)
    assert patch["conditions"][0] == others
    assert len(patch["conditions"]) == 2


def test_a_condition_says_for_which_generation_it_was_judged() -> None:
    [made] = staged().patch({}, 7, NOW)["conditions"]
    assert made["observedGeneration"] == 7
    assert staged().patch({"conditions": [made]}, 7, NOW) == {}
    [later] = staged().patch({"conditions": [made]}, 8, NOW)["conditions"]
    assert (later["observedGeneration"], later["lastTransitionTime"]) == (8, NOW)


def test_the_last_condition_of_a_type_counts() -> None:
    run = staged(status="False")
    run.set_condition("Ready", "True", "Done", "")
    [made] = run.patch({}, 0, NOW)["conditions"]
    assert (made["status"], made["reason"]) == ("True", "Done")


@pytest.mark.parametrize(
    ("present", "now"),
    [
        ({"lastHeartbeat": THEN}, {"lastHeartbeat": NOW}),
        ({"members": ["a", "b", "a"]}, {"members": ["a", "a", "b"]}),
        ({"members": [{"n": 1, "of": [1, 2]}, {"n": 2}]}, {"members": [{"n": 2}, {"of": [2, 1], "n": 1}]}),
        ({"node": {"lastProbeTime": THEN, "up": True}}, {"node": {"lastProbeTime": NOW, "up": True}}),
        (
            {"conditions": [condition("A", "True"), condition("B", "True")]},
            {"conditions": [condition("B", "True", lastTransitionTime=NOW), condition("A", "True")]},
        ),
    ],
)
def test_order_and_times_of_looking_are_no_reason_to_write(present: dict[str, Any], now: dict[str, Any]) -> None:
    run = StagedStatus()
    run.set_fields({"phase": "Ready", **now})
    assert run.patch({"phase": "Ready", **present}, 0, NOW) == {}
    run.set_fields({"phase": "Gone"})
    assert run.patch({"phase": "Ready", **present}, 0, NOW) == {"phase": "Gone", **now}, "written with what is written"


@pytest.mark.parametrize(
    ("present", "now"),
    [
        ({}, {"lastHeartbeat": NOW}),
        ({"lastBackupTime": THEN}, {"lastBackupTime": NOW}),
        ({"members": ["a", "b"]}, {"members": ["a", "a", "b"]}),
        ({"members": ["a"]}, {"members": None}),
        ({"conditions": [condition("A", "True")]}, {"conditions": [condition("A", "False")]}),
        ({"numbers": [1, 2]}, {"numbers": ["1", "2"]}),
    ],
)
def test_whatever_else_differs_is_written(present: dict[str, Any], now: dict[str, Any]) -> None:
    run = StagedStatus()
    run.set_fields(now)
    assert run.patch(present, 0, NOW) == now
