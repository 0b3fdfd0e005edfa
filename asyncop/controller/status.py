"""Status and conditions that a run stages, merged into what is there. Pure.

Only what differs is written: equal conditions keep their lastTransitionTime, the order of conditions doesn't matter,
and those of others are left as they are. The rules for conditions are those of the API conventions (metav1.Condition).

A status that differs from what is there by nothing but the order of its lists, or by the times at which somebody last
looked, says nothing new. Written all the same it would wake whoever watches it, who writes theirs, without end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from asyncop.api.names import wire_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEATS = frozenset({"lastHeartbeat", "lastHeartbeatTime", "lastProbeTime"})
"""Times of looking, by their names in Kubernetes' own kinds; of no interest while what was seen is the same."""

_CONDITION_TIMES = _BEATS | {"lastTransitionTime", "lastUpdateTime"}


@dataclass(slots=True)
class StagedStatus:
    """What one run wants its object's status to say."""

    fields: dict[str, Any] = field(default_factory=dict)
    """By name on the wire; None takes a field away."""
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)
    """By type."""

    def set_fields(self, fields: Mapping[str, Any]) -> None:
        """Stage fields given by their Python names."""
        self.fields.update({wire_name(name): value for name, value in fields.items()})

    def set_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        """Stage a condition; the last one of a type counts."""
        self.conditions[kind] = {"type": kind, "status": status, "reason": reason, "message": message}

    def patch(self, present: Mapping[str, Any], generation: int, now: str) -> dict[str, Any]:
        """What must be merged into the `present` status; empty if it says all that already.

        `now` is for conditions whose status changes, as an RFC 3339 time of whole seconds.
        """
        changed = {name: value for name, value in self.fields.items() if present.get(name) != value}
        conditions = self._merged(present.get("conditions") or [], generation, now)
        if conditions is not None:
            changed["conditions"] = conditions
        elif changed and all(_is_no_news(name, present.get(name), value) for name, value in changed.items()):
            return {}
        return changed

    def _merged(self, present: list[dict[str, Any]], generation: int, now: str) -> list[dict[str, Any]] | None:
        """The whole list, since a merge patch replaces lists; None if nothing in it changes."""
        left = dict(self.conditions)
        merged = []
        for condition in present:
            staged = left.pop(condition.get("type", ""), None)
            merged.append(condition if staged is None else _updated(condition, staged, generation, now))
        merged += [_updated({}, staged, generation, now) for staged in left.values()]
        return None if merged == present else merged


def _updated(present: dict[str, Any], staged: dict[str, str], generation: int, now: str) -> dict[str, Any]:
    same_status = present.get("status") == staged["status"]
    transition = present.get("lastTransitionTime") if same_status else None
    observed = {"observedGeneration": generation} if generation else {}
    return {**present, **staged, **observed, "lastTransitionTime": transition or now}


def _is_no_news(name: str, present: Any, staged: Any) -> bool:
    """Whether a field that differs still says the same."""
    if present is None or staged is None:
        return False
    return name in _BEATS or _essence(present) == _essence(staged)


def _essence(value: Any) -> Any:
    """What a value says, whatever the order of its lists and the time of looking."""
    if isinstance(value, dict):
        beats = _CONDITION_TIMES if "type" in value and "status" in value else _BEATS
        return {key: _essence(member) for key, member in value.items() if key not in beats}
    if isinstance(value, list | tuple):
        return sorted(msgspec.json.encode(_essence(member), order="sorted") for member in value)
    return value
