"""Kubernetes Events: queued by reconcilers, posted by one task, never in anybody's way.

Events are for people (`kubectl describe`). A full queue, a failing server or a namespace that is going away costs
Events and a debug line, never a reconcile. Fields follow events.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import structlog

from asyncop.api.errors import AsyncopError
from asyncop.api.meta import MicroTime, ObjectMeta, encode_hook

if TYPE_CHECKING:
    from asyncop.client import Client

log = structlog.get_logger("asyncop.events")

LIMIT = 1000  # Events waiting; the oldest are dropped first
NOTE_LIMIT = 1024  # bytes; the API server refuses longer ones
POST_TIMEOUT = 5.0


class Regarding(NamedTuple):
    """Which object an Event is about."""

    api_version: str
    kind: str
    metadata: ObjectMeta


class Recorder:
    """The queue of Events of one operator."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._controller = f"asyncop.dev/{name}"
        self._instance = os.environ.get("POD_NAME") or socket.gethostname()
        self._queue: deque[dict[str, Any]] = deque(maxlen=LIMIT)
        self._wake = asyncio.Event()

    def record(self, about: Regarding, reason: str, note: str, kind: str = "Normal") -> None:
        """Queue one Event; never raises. `reason` is UpperCamelCase, the note one line of at most 1 kB."""
        metadata = about.metadata
        namespace = metadata.namespace or "default"  # where Events of cluster-scoped objects live
        regarding = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": metadata.name,
            "namespace": metadata.namespace or None,
            "uid": metadata.uid or None,
            "resourceVersion": metadata.resource_version or None,
        }
        self._queue.append(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": f"{metadata.name[:230]}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
                "eventTime": MicroTime.of(datetime.now(UTC)),
                "reportingController": self._controller,
                "reportingInstance": self._instance,
                "action": reason,
                "reason": reason,
                "note": note.encode()[:NOTE_LIMIT].decode(errors="ignore"),
                "type": kind,
                "regarding": {key: value for key, value in regarding.items() if value is not None},
            }
        )
        self._wake.set()

    async def run(self) -> None:
        """Post Events until cancelled; what fails is dropped after the client's own retries."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._post_next()

    async def flush(self, timeout: float) -> None:
        """Post what is queued, for at most `timeout` seconds; for the time after `run` was cancelled."""
        try:
            async with asyncio.timeout(timeout):
                while self._queue:
                    await self._post_next()
        except TimeoutError:
            log.warning("Dropped Events at shutdown", count=len(self._queue))

    async def _post_next(self) -> None:
        event = self._queue.popleft()
        try:
            await self._post(event)
        except asyncio.CancelledError:
            self._queue.appendleft(event)  # for `flush`; if it has arrived, its name is taken and nothing happens
            raise

    async def _post(self, event: dict[str, Any]) -> None:
        path = f"/apis/events.k8s.io/v1/namespaces/{event['metadata']['namespace']}/events"
        try:
            body = msgspec.json.encode(event, enc_hook=encode_hook)
            await self._client.raw("POST", path, body=body, timeout=POST_TIMEOUT, repeatable=True)
        except AsyncopError as error:
            log.debug("Could not post Event", reason=event["reason"], err=str(error))
