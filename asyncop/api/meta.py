"""The parts that every Kubernetes object shares, and the few value types with rules of their own.

Times are aware `datetime`s in UTC; `Time` fields have whole seconds, `MicroTime` fields always six digits (an API
server refuses a Lease whose time has any other number of them).
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Self

import msgspec

from asyncop.api.struct import Struct, field

_EXACT = Context(prec=400)  # digits: no amount that people write is rounded, in whatever unit

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


@functools.total_ordering
class Quantity:
    """An exact amount such as `100m`, `1.5Gi` or `129e6`; equal amounts compare equal however they are spelled.

    Made from what an API server sends, or from a number. As text it is what it was made from, but never with an
    exponent: `Quantity(0.5)` is `500m`, `Quantity("129e6")` is `129M`.
    """

    __slots__ = ("_text", "value")
    value: Decimal

    _NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i|)", re.ASCII)
    _SUFFIXES = {
        suffix: Decimal(base) ** power
        for base, suffixes in (
            (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
            (1000, ("", "k", "M", "G", "T", "P", "E")),
        )
        for power, suffix in enumerate(suffixes)
    } | {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")}

    def __init__(self, amount: str | int | float | Decimal) -> None:
        match = self._NUMBER.fullmatch(str(amount))
        if match is None:
            raise ValueError(f"{amount!r} is not a quantity; write 100m, 1.5, 128Mi or 129e6")
        number, unit = match.groups()
        is_exponent = len(unit) > 1 and unit[1] != "i"
        self.value = Decimal(number + unit) if is_exponent else _EXACT.multiply(Decimal(number), self._SUFFIXES[unit])
        is_plain = isinstance(amount, str) and not is_exponent
        self._text = str(amount) if is_plain else self._canonical()

    def format(self, suffix: str = "") -> str:
        """The amount in units of a suffix, exact and without an exponent: `Quantity("0.5").format("m")` is `500m`.

        Raises:
            ValueError: there is no such suffix.
        """
        if suffix not in self._SUFFIXES:
            raise ValueError(
                f"{suffix!r} is no suffix of quantities; they are {' '.join(filter(None, self._SUFFIXES))}"
            )
        number = f"{_EXACT.divide(self.value, self._SUFFIXES[suffix]):f}"
        number = number.rstrip("0").rstrip(".") if "." in number else number
        return ("0" if number in ("-0", "") else number) + suffix

    def _canonical(self) -> str:
        """With the largest decimal suffix that leaves no fraction, as an API server writes it."""
        if self.value:
            for suffix in ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"):
                if _EXACT.remainder(self.value, self._SUFFIXES[suffix]) == 0:
                    return self.format(suffix)
        return self.format()

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
