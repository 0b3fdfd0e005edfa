"""The parts that every Kubernetes object shares, and the few value types with rules of their own.

Times are aware `datetime`s in UTC; `Time` fields have whole seconds, `MicroTime` fields always six digits (an API
server refuses a Lease whose time has any other number of them).
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Self

import msgspec

from asyncop.api.struct import Struct, field

IntOrString = int | str
"""A port, count or percentage: an int, or a string such as `50%`."""


class MicroTime(datetime):
    """A time with exactly six fraction digits on the wire, as Leases and Events need it."""

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The same moment; a naive one is refused, since it would mean another time in another zone."""
        if moment.tzinfo is None:
            raise ValueError("a MicroTime needs an aware datetime, e.g. datetime.now(datetime.UTC)")
        utc = moment.astimezone(UTC)
        return cls(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)

    def wire(self) -> str:
        """As the API server wants it: UTC, six digits, `Z`."""
        return self.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Quantity:
    """An exact amount such as `100m`, `1.5Gi` or `129e6`; equal amounts compare equal however they are spelled."""

    __slots__ = ("_text", "value")
    value: Decimal

    _SUFFIXES = {
        suffix: Decimal(base) ** power
        for base, suffixes in (
            (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
            (1000, ("", "k", "M", "G", "T", "P", "E")),
        )
        for power, suffix in enumerate(suffixes)
    } | {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}

    def __init__(self, text: str | int | float | Decimal) -> None:
        self._text = str(text)
        number = self._text
        suffix = ""
        while number and not (number[-1].isdigit() or number[-1] == "."):
            number, suffix = number[:-1], number[-1] + suffix
        try:
            if suffix not in self._SUFFIXES or (suffix and "e" in number.lower()):
                raise InvalidOperation
            self.value = Decimal(number) * self._SUFFIXES[suffix]
        except InvalidOperation:
            raise ValueError(f"{text!r} is not a quantity; write 100m, 1.5, 128Mi or 129e6") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __lt__(self, other: Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"


class OwnerReference(Struct):
    """Who owns an object, by uid; the garbage collector deletes the object when no owner is left."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """All of `metadata` but managedFields."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Struct):
    """One entry of `status.conditions` as `metav1.Condition` has it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class LabelSelectorRequirement(Struct):
    """One `matchExpressions` entry."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct):
    """`matchLabels` and `matchExpressions`, as objects carry them."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def decode_hook(kind: Any, value: Any) -> Any:
    """Msgspec's `dec_hook` for the value types of this module."""
    if kind is MicroTime:
        return MicroTime.of(datetime.fromisoformat(value))
    if kind is Quantity:
        return Quantity(value)
    raise NotImplementedError(f"{kind} can't be decoded; declare a type that msgspec knows, Quantity or MicroTime")


def encode_hook(value: Any) -> Any:
    """Msgspec's `enc_hook` for the value types of this module."""
    if isinstance(value, MicroTime):
        return value.wire()
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} can't be sent; use a type that msgspec knows")


def without_none(value: Any) -> Any:
    """A copy of plain dicts and lists without None members: how intents are sent."""
    if isinstance(value, dict):
        return {key: without_none(member) for key, member in value.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [without_none(member) for member in value]
    return value


def to_wire(obj: Any) -> Any:
    """Plain dicts and lists of a Struct (or of anything JSON knows), with the names that go over the wire."""
    return msgspec.to_builtins(obj, enc_hook=encode_hook, str_keys=True)
