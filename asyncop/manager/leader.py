"""Leader election by a Lease, as client-go does it: of several replicas one leads, the others stand by.

What is promised: a replica that leads stops before another can take over. It counts on its own monotonic clock from
the moment *before* its last good renewal was sent; nobody's wall clock is trusted. A candidate takes a Lease over only
after it has itself seen it unchanged for a whole lease duration. Writes of the leader pass `gate`, which clips their
time limit to what is left of the renew deadline; between that and the lease's end lies the time that a write already
on its way may take.

Who cancels the work when the lead is lost, and releases the Lease last of all at the end, is the manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from asyncop.api.errors import AsyncopError, ConfigError, ConflictError, LeaseLostError, NotFoundError
from asyncop.api.meta import MicroTime, ObjectMeta
from asyncop.api.object import Object
from asyncop.api.struct import Struct
from asyncop.metrics import leader as metrics

if TYPE_CHECKING:
    from asyncop.client import Client

log = structlog.get_logger("asyncop.leader")

JITTER = 1.2  # client-go's: candidates don't all come at once


class LeaseSpec(Struct):
    """Who holds a Lease, and how long it counts."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(Object, api_version="coordination.k8s.io/v1", kind="Lease", plural="leases", namespaced=True):
    """The Lease that replicas compete for."""

    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, kw_only=True)
class LeaderElectionOptions:
    """How replicas compete; defaults of client-go and controller-runtime, in seconds."""

    name: str
    """Of the Lease: the operator's name."""
    namespace: str = ""
    """Of the Lease; empty: the client's own, which is the Pod's in a cluster."""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    identity: str = field(
        default_factory=lambda: f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    )

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > JITTER * self.retry_period > 0:
            raise ConfigError(
                "leader election: the lease duration must be longer than the renew deadline, and that longer than "
                f"{JITTER} x the retry period; these are {self.lease_duration:g}, {self.renew_deadline:g} and "
                f"{self.retry_period:g} s"
            )


class LeaderElector:
    """One replica's part in the election.

    `client` must not be gated by this elector. Not safe to run twice at once.
    """

    def __init__(self, client: Client, options: LeaderElectionOptions) -> None:
        self._client, self._options = client, options
        self._namespace = options.namespace or client.namespace
        self._renewed_at: float | None = None  # monotonic, taken before the renewal was sent; None: not leading
        self._observed: LeaseSpec | None = None
        self._observed_at = 0.0
        self._version = ""
        metrics.set_master(options.name, is_leader=False)

    @property
    def is_leader(self) -> bool:
        """Whether the lead is ours beyond doubt at this moment."""
        return self._left() > 0

    def gate(self) -> float:
        """Seconds that writes are allowed from now on.

        Raises:
            LeaseLostError: we don't lead, or may not any more.
        """
        left = self._left()
        if left <= 0:
            raise LeaseLostError("the lead may be lost; nothing was sent")
        return left

    async def acquire(self) -> None:
        """Campaign until we lead. Failures of the server are retried for ever."""
        reported = ""
        while not await self._try("Could not campaign"):
            holder = (self._observed and self._observed.holder_identity) or ""
            if holder != reported:
                log.info("Standing by", lease=self._options.name, leader=holder)
                reported = holder
            await asyncio.sleep(self._options.retry_period * random.uniform(1, JITTER))
        metrics.set_master(self._options.name, is_leader=True)
        log.info("Became leader", lease=self._options.name, identity=self._options.identity)

    async def hold(self) -> None:
        """Renew until the lead is lost, or must be taken as lost since the renew deadline has passed.

        Returns at that moment, not later: a renewal that hangs is cancelled at the deadline. If cancelled, what is left
        of the lead stays ours, for the last Events, until `release`.
        """
        while self._left() > 0 and not self._is_taken():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._left()):
                    await asyncio.sleep(self._options.retry_period)
                    await self._try("Could not renew the lease")
        self._renewed_at = None
        metrics.set_master(self._options.name, is_leader=False)
        log.warning("No longer leader", lease=self._options.name)

    async def release(self, timeout: float = 5.0) -> None:
        """Give the Lease up, so that another need not wait for its end; the last thing that is done.

        Does nothing if it isn't ours. A failure is only logged: the Lease ends by itself.
        """
        self._renewed_at = None
        metrics.set_master(self._options.name, is_leader=False)
        if self._observed is None or not self._is_ours():
            return
        given_up = {"holder_identity": "", "lease_duration_seconds": 1, "renew_time": _now()}
        spec = structs.replace(self._observed, **given_up)  # type: ignore[type-var]  # a msgspec Struct at run time
        try:
            async with asyncio.timeout(timeout):
                await self._write(spec)
            log.info("Released the lease", lease=self._options.name)
        except (AsyncopError, TimeoutError) as error:
            log.warning("Could not release the lease", lease=self._options.name, err=str(error))

    # -- one try

    async def _try(self, complaint: str) -> bool:
        """Read the Lease and take or renew it if we may; whether it is ours now."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._options.renew_deadline):
                taken = await self._take()
        except ConflictError:
            return False  # somebody was quicker
        except (AsyncopError, TimeoutError) as error:
            log.warning(complaint, lease=self._options.name, err=str(error) or "no answer in time")
            return False
        if taken:
            self._renewed_at = started
        return taken

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(Lease, self._options.name, namespace=self._namespace)
        except NotFoundError:
            await self._create()
            return True
        self._observe(lease)
        if not self._is_ours() and not self._is_free():
            return False
        await self._write(self._claim(lease.spec))
        return True

    def _observe(self, lease: Lease) -> None:
        self._version = lease.metadata.resource_version
        if lease.spec != self._observed:
            self._observed, self._observed_at = lease.spec, time.monotonic()

    def _is_ours(self) -> bool:
        return self._observed is not None and self._observed.holder_identity == self._options.identity

    def _is_taken(self) -> bool:
        return bool(self._observed and self._observed.holder_identity) and not self._is_ours()

    def _is_free(self) -> bool:
        """Whether its holder gave it up, or we have seen it unchanged for as long as it counts."""
        if self._observed is None or not self._observed.holder_identity:
            return True
        duration = self._observed.lease_duration_seconds or self._options.lease_duration
        return time.monotonic() - self._observed_at >= duration

    def _claim(self, present: LeaseSpec) -> LeaseSpec:
        now, is_ours = _now(), self._is_ours()
        return LeaseSpec(
            holder_identity=self._options.identity,
            lease_duration_seconds=max(1, round(self._options.lease_duration)),
            acquire_time=present.acquire_time if is_ours else now,
            renew_time=now,
            lease_transitions=(present.lease_transitions or 0) + (not is_ours),
        )

    async def _create(self) -> None:
        metadata = ObjectMeta(name=self._options.name, namespace=self._namespace)
        claim = self._claim(LeaseSpec(lease_transitions=-1))
        self._observe(await self._client.create(Lease(metadata=metadata, spec=claim)))

    async def _write(self, spec: LeaseSpec) -> None:
        """Write it, unless somebody else has written since we read it (409)."""
        patch = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        self._observe(await self._client.patch(Lease, patch, name=self._options.name, namespace=self._namespace))

    def _left(self) -> float:
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._options.renew_deadline - time.monotonic()


def _now() -> MicroTime:
    return MicroTime.of(datetime.now(UTC))
