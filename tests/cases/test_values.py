"""What people met with the values in objects: times with too few digits, amounts that were read wrongly."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest
from aiohttp import web

import asyncop
from asyncop.api.meta import decode_hook, to_wire
from asyncop.client import Client, Transport
from asyncop.manager import leader
from tests.unit.client.conftest import connection_to
from tests.unit.client.server import Server, status

if TYPE_CHECKING:
    from collections.abc import Iterator

Quantity = asyncop.Quantity

# -- BL-26

MOMENTS = {
    "exactly-zero": datetime(2026, 7, 1, 12, 0, 0, 0, UTC),
    "millisecond-steps": datetime(2026, 7, 1, 12, 0, 0, 123_000, UTC),
    "all-digits": datetime(2026, 7, 1, 12, 0, 0, 123_456, UTC),
}
SIX_DIGITS = re.compile(r"2026-07-01T12:00:00\.\d{6}Z")


@pytest.fixture(params=["America/New_York", "Asia/Kolkata", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as environment:
        environment.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.asyncio
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
async def test_bl_26_a_server_that_demands_six_digits_takes_every_lease(
    zone: str, moment: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Self:
            shown = moment.astimezone(tz)
            return cls(*shown.timetuple()[:6], shown.microsecond, shown.tzinfo)

    stored: dict[str, Any] = {}
    written: list[str] = []

    async def strict(request: web.Request) -> web.StreamResponse:
        if request.method in ("POST", "PATCH"):
            body = await request.json()
            times = [body["spec"][name] for name in ("acquireTime", "renewTime")]
            written.extend(times)
            if not all(SIX_DIGITS.fullmatch(each) for each in times):
                return await status(400, "BadRequest", f"cannot parse {times}")(request)
            stored.update(body, apiVersion="coordination.k8s.io/v1", kind="Lease")
            stored["metadata"] = {**body["metadata"], "resourceVersion": str(len(written))}
        return web.json_response(stored) if stored else await status(404, "NotFound", "none")(request)

    monkeypatch.setattr(leader, "datetime", Clock)
    server = Server()
    await server.start()
    resource = {"name": "leases", "singularName": "lease", "kind": "Lease", "namespaced": True, "verbs": ["get"]}
    group = {"kind": "APIResourceList", "groupVersion": "coordination.k8s.io/v1", "resources": [resource]}
    server.routes["/apis/coordination.k8s.io/v1"] = lambda _: answered(group)
    for path in ("", "/op"):
        server.routes[f"/apis/coordination.k8s.io/v1/namespaces/default/leases{path}"] = strict
    transport = Transport(connection_to(server.url), user_agent="case", timeout=5)
    elector = leader.LeaderElector(Client(transport), leader.LeaderElectionOptions(name="op", retry_period=0.05))
    try:
        await elector.acquire()
        holding = asyncio.create_task(elector.hold())
        async with asyncio.timeout(10):
            while len(written) < 6:  # created, and renewed twice  # noqa: ASYNC110 - a server writes it
                await asyncio.sleep(0.01)
        holding.cancel()
    finally:
        await transport.aclose()
        await server.stop()
    assert set(written) == {f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"}


async def answered(body: Any) -> web.Response:
    return web.json_response(body)


class Spec(asyncop.Struct):
    at: datetime | None = None
    renewed: asyncop.MicroTime | None = None


def test_bl_26_only_aware_times_are_inside_whatever_the_zone(zone: str) -> None:
    text = b'{"at":"2026-07-01T12:00:00Z","renewed":"2026-07-01T12:00:00.000000Z"}'
    spec = msgspec.json.decode(text, type=Spec, dec_hook=decode_hook)
    assert spec.at == spec.renewed == MOMENTS["exactly-zero"]
    assert to_wire(spec) == {"at": "2026-07-01T12:00:00Z", "renewed": "2026-07-01T12:00:00.000000Z"}
    with pytest.raises(ValueError, match="needs an aware datetime"):
        asyncop.MicroTime.of(datetime(2026, 7, 1, 12))


# -- BL-28


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("128974848000m", 128974848),
        ("123Mi", 128974848),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("0.5", Decimal("0.5")),
        ("100n", Decimal("0.0000001")),
        ("-1.5Gi", -1610612736),
        (".5", Decimal("0.5")),
        ("+1.", 1),
        ("1234567890123456789012345.123456789Ei", Decimal("1234567890123456789012345.123456789")),
    ],
)
def test_bl_28_amounts_are_read_exactly(text: str, amount: int | Decimal) -> None:
    factor = 2**60 if text.endswith("Ei") else 1
    exact = Quantity(text).value
    numerator, denominator = exact.as_integer_ratio()
    wanted, by = Decimal(amount).as_integer_ratio()
    assert numerator * by == wanted * factor * denominator


@pytest.mark.parametrize(
    "text",
    [
        "1e-7Ti",
        "1e3Mi",
        "1K",
        "1ki",
        "NaN",
        "Infinity",
        "1_000",
        " 1",
        "1 ",
        "1\n",
        "\u0661",
        "1e",
        "1e999",
        "",
        "-",
        ".",
    ],
)
def test_bl_28_what_a_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity(text)


@pytest.mark.parametrize(
    ("amount", "suffix", "text"),
    [
        (0.5, "m", "500m"),
        ("0.5", "m", "500m"),
        ("1e-7", "n", "100n"),
        ("100n", "", "0.0000001"),
        ("1E", "", "1000000000000000000"),
        ("128974848", "Mi", "123Mi"),
        ("1", "Ki", "0.0009765625Ki"),
        ("-0.25", "m", "-250m"),
        (0, "m", "0m"),
        ("1000", "k", "1k"),
        ("1500", "", "1500"),
    ],
)
def test_bl_28_amounts_are_written_exactly_and_never_with_an_exponent(amount: Any, suffix: str, text: str) -> None:
    assert Quantity(amount).format(suffix) == text
    assert Quantity(text) == Quantity(amount)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.5, "500m"), (0.1, "100m"), (1e-7, "100n"), (1e22, "10000E"), (2, "2"), (0, "0"), (1500, "1500"),
        (Decimal("1E+3"), "1k"), ("129e6", "129M"), ("1e-10", "0.0000000001"), (128974848, "128974848"),
        ("0.5", "0.5"), ("1000m", "1000m"), ("1.50Gi", "1.50Gi"),
    ],
)  # fmt: skip
def test_bl_28_what_is_sent_is_as_it_was_read_or_canonical(amount: Any, text: str) -> None:
    quantity = Quantity(amount)
    assert str(quantity) == text
    assert to_wire({"cpu": quantity}) == {"cpu": text}
    assert Quantity(text) == quantity


class Limits(asyncop.Struct):
    cpu: Quantity | None = None


def test_bl_28_equal_amounts_in_different_spelling_are_no_change() -> None:
    spellings = ("0.5", "500m", "5e-1", "500000u", ".50")
    assert len({Quantity(text) for text in spellings}) == 1
    decoded = [msgspec.convert({"cpu": text}, Limits, dec_hook=decode_hook) for text in spellings]
    assert all(limits == decoded[0] for limits in decoded)
    assert Quantity("1") < Quantity("1.1")
    assert Quantity("1Ki") >= Quantity("1k")
    assert max(Quantity("1G"), Quantity("1Gi")) == Quantity(2**30)


def test_bl_28_a_suffix_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'K' is no suffix"):
        Quantity("1").format("K")
