"""Faults that people met with leader election: at no moment may two replicas write. Time is real."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import pytest

import asyncop
from asyncop.manager import leader
from tests.cases.embedded import Asked, World, embedded, refused, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiohttp import web

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

MAPS = "/api/v1/namespaces/default/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/op"
DURATION, DEADLINE, RETRY = 2.0, 1.4, 0.2


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Replica:
    """One of two replicas; it writes all the time while it leads."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.code: int | None = None
        self.ended_at: float | None = None
        """When its leading task was ended."""

        @asyncop.task(name="write")
        async def write(client: asyncop.Client) -> None:
            await self.work(client)

        self.tasks = [write]
        self.reconcilers: list[asyncop.Reconciler[Any]] = []

    async def work(self, client: asyncop.Client) -> None:
        try:
            while True:
                with contextlib.suppress(asyncop.ApiError, asyncop.TransportError):
                    await client.patch(ConfigMap, {"data": {"by": self.name}}, name="a", namespace="default")
                await asyncio.sleep(0.03)
        finally:
            self.ended_at = asyncio.get_running_loop().time()

    @contextlib.asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[asyncop.Manager]:
        election = asyncop.LeaderElectionOptions(
            name="op",
            namespace="default",
            identity=self.name,
            lease_duration=DURATION,
            renew_deadline=DEADLINE,
            retry_period=RETRY,
        )
        manager = asyncop.Manager(
            reconcilers=self.reconcilers,
            tasks=self.tasks,
            options=asyncop.ManagerOptions(
                name=self.name,
                namespaces=("default",),
                kubeconfig=str(self._world.kubeconfig),
                leader_election=election,
                **options,
            ),
        )
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            self.code = await running

    def is_mine(self, asked: Asked) -> bool:
        return asked.agent == f"asyncop/{self.name}"

    def writes(self) -> list[float]:
        """When its writes arrived, those to the Lease apart."""
        return [asked.at for asked in self._world.writes() if self.is_mine(asked) and asked.resource == "configmaps"]

    def renewals(self) -> list[float]:
        return [asked.at for asked in self._world.writes() if self.is_mine(asked) and asked.resource == "leases"]


class JumpingClock(datetime):
    """A wall clock that is an hour ahead, or isn't, from one look to the next."""

    _looks = itertools.count()

    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return super().now(tz) + timedelta(hours=next(cls._looks) // 3 % 2)


async def test_bl_16_a_leader_that_cannot_renew_writes_nothing_when_another_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "datetime", JumpingClock)  # the one wall clock that the election reads
    async with asyncio.TaskGroup() as tasks:
        for fault in ("refused", "hangs"):
            (tmp_path / fault).mkdir()
            tasks.create_task(loses_its_lease(tmp_path / fault, hangs=fault == "hangs"), name=fault)


async def loses_its_lease(folder: Path, *, hangs: bool) -> None:
    spoilt: list[float] = []

    async def spoil_renewals(asked: Asked) -> web.Response | None:
        if not (is_spoilt and a.is_mine(asked) and asked.verb == "patch" and asked.resource == "leases"):
            return None
        spoilt.append(asked.at)
        if hangs:
            await asyncio.sleep(20)
        return refused(403, "Forbidden") if len(spoilt) % 2 else refused(409, "Conflict")

    is_spoilt = False
    async with embedded(folder) as world:
        await world.create(MAPS, "a")
        world.instead(spoil_renewals)
        a, b = Replica(world, "a"), Replica(world, "b")
        async with a.running():
            await until(lambda: bool(a.writes()), "a leads")
            async with b.running():
                await asyncio.sleep(DURATION + 0.5)
                assert b.writes() == [], "whatever the time is, a renews"
                good = a.renewals()[-1]
                is_spoilt = True
                await until(lambda: bool(b.writes()), "b leads")
                await asyncio.sleep(1)
                last_of_a, first_of_b = a.writes()[-1], b.writes()[0]
                assert last_of_a <= good + DEADLINE + RETRY, "a stopped at its deadline, by its own clock"
                assert last_of_a < first_of_b, "never both"
                assert a.ended_at is not None
                assert a.ended_at < first_of_b, "what a did was cancelled"
                assert first_of_b >= good + DURATION, "b has waited for the whole lease"
                assert spoilt
                is_spoilt = False
    assert (a.code, b.code) == (0, 0)


async def test_bl_18_a_leading_task_that_dies_ends_the_process_and_another_leads(tmp_path: Path) -> None:
    async with embedded(tmp_path) as world:
        await world.create(MAPS, "a")
        a, b = Replica(world, "a"), Replica(world, "b")

        async def dies(client: asyncop.Client) -> None:
            await asyncio.sleep(2)
            raise RuntimeError("the leading task dies")

        a.work = dies  # type: ignore[method-assign]
        async with a.running():
            await until(lambda: bool(a.renewals()), "a leads")
            async with b.running():
                await until(lambda: bool(b.writes()), "b leads instead")
                await asyncio.sleep(DURATION)
                assert a.renewals()[-1] < b.writes()[0], "a renews no more"
                assert (await world.call("GET", LEASE))["spec"]["holderIdentity"] == "b"
        assert (a.code, b.code) == (1, 0)


async def test_bl_18_a_lease_is_given_up_after_the_last_worker(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        for patience in (30.0, 1.0):  # as long as it needs; to its time limit
            (tmp_path / str(patience)).mkdir()
            tasks.create_task(ends_in_order(tmp_path / str(patience), patience))


async def ends_in_order(folder: Path, patience: float) -> None:
    needs = DURATION + 1.5  # beyond a lease: it is renewed while workers end
    ended: list[float] = []
    async with embedded(folder) as world:
        await world.create(MAPS, "a")
        a, b = Replica(world, "a"), Replica(world, "b")
        loop = asyncio.get_running_loop()

        @asyncop.reconciler(ConfigMap, name="slow", resync=0)
        async def slow(obj: ConfigMap, ctx: asyncop.Context) -> None:
            started = loop.time()
            try:
                while loop.time() < started + needs:
                    await ctx.client.patch(obj, {"data": {"by": "a"}})
                    await asyncio.sleep(0.05)
            finally:
                ended.append(loop.time())

        a.tasks, a.reconcilers = [], [slow]
        async with a.running(graceful_timeout=patience) as leading:
            await until(lambda: bool(a.writes()), "a works")
            async with b.running():
                leading.stop()
                asked_at = loop.time()
                await until(lambda: bool(b.writes()), "b leads")
                last_of_a, released, first_of_b = a.writes()[-1], a.renewals()[-1], b.writes()[0]
                lasted = min(needs, patience)
                assert lasted * 0.6 < ended[-1] - asked_at < lasted + 5
                assert ended[-1] <= released < first_of_b
                assert last_of_a <= released, "also the write that was on its way when its worker was cancelled"
                await asyncio.sleep(0.5)
                assert a.writes()[-1] == last_of_a
                assert first_of_b - released < DURATION, "b need not wait for the lease's end"
        assert a.code == 0
