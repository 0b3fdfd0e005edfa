"""Many ConfigMaps, made and changed as fast as asked, also over an API server that goes away and comes back."""

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiohttp

from tests.testbed.cluster import Cluster

CONNECTIONS = 8
PATIENCE = 30.0
"""Seconds that one change is tried for."""


class Load:
    """Kept-open connections to the API server, as the administrator, for one namespace."""

    def __init__(self, session: aiohttp.ClientSession, collection: str) -> None:
        self._session, self._collection = session, collection
        self.versions: dict[str, str] = {}
        """The resourceVersion of each ConfigMap after its last change."""
        self.count = 0

    async def create(self, names: Iterable[str]) -> None:
        """Make them, as fast as it goes."""
        remaining = iter(names)

        async def some() -> None:
            for name in remaining:
                await self._send("POST", self._collection, {"metadata": {"name": name}})

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(some())

    async def change(self, rate: float, until: asyncio.Event) -> None:
        """Change one after the other, so many a second, until told to end and what has begun is done."""
        names = itertools.cycle(list(self.versions))
        loop = asyncio.get_running_loop()
        started, behind = loop.time(), asyncio.Semaphore(CONNECTIONS)
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                if until.is_set():
                    break
                await asyncio.sleep(started + number / rate - loop.time())
                await behind.acquire()
                name = next(names)
                change = self._send("PATCH", f"{self._collection}/{name}", {"data": {"number": str(number)}})
                group.create_task(change).add_done_callback(lambda _: behind.release())

    async def _send(self, method: str, path: str, body: dict[str, object]) -> None:
        """Until it has been carried out; that may be twice, for an answer can get lost."""
        async with asyncio.timeout(PATIENCE):
            while not await self._try(method, path, body):  # noqa: ASYNC110 - nobody tells when the server is back
                await asyncio.sleep(0.1)
        self.count += 1

    async def _try(self, method: str, path: str, body: dict[str, object]) -> bool:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            async with self._session.request(
                method, path, data=json.dumps(body), headers={"Content-Type": kind}
            ) as answer:
                made = await answer.json()
        except (aiohttp.ClientError, OSError):
            return False
        if not answer.ok:
            return answer.status == 409 and method == "POST"
        metadata = made["metadata"]
        # Answers may overtake each other. Of one type, later versions are greater.
        version = max(metadata["resourceVersion"], self.versions.get(metadata["name"], "0"), key=int)
        self.versions[metadata["name"]] = version
        return True


@asynccontextmanager
async def loading(cluster: Cluster, namespace: str) -> AsyncIterator[Load]:
    """What changes ConfigMaps of a namespace."""
    plane = cluster.control_plane
    tls = ssl.create_default_context(cafile=str(plane.pki.ca))
    tls.load_cert_chain(plane.pki.certificate("admin"), plane.pki.key("admin"))
    connector = aiohttp.TCPConnector(ssl=tls, limit=CONNECTIONS)
    async with aiohttp.ClientSession(plane.server, connector=connector) as session:
        yield Load(session, f"/api/v1/namespaces/{namespace}/configmaps")
