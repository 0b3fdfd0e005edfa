"""Random operations, faults, restarts and compactions; at the end the cache must equal the server.

Many seeds run at once against one embedded server, each in a namespace of its own, while one more random stream
disturbs them all. `python -m tests.cases.convergence SEEDS [FIRST]` runs fresh ones (`make soak`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

import asyncop
from asyncop.testing import ApiServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STEPS = 60
NAMES = [f"obj-{number}" for number in range(8)]
LIMIT = 90.0  # seconds until all must have come to rest after the last fault; backoffs are up to a minute
AT_ONCE = 25


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class World:
    """One seed: a namespace, what is done to it, and an operator that must keep up."""

    def __init__(self, seed: int, server: ApiServer, kubeconfig: Path, session: aiohttp.ClientSession) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self._session, self._kubeconfig = session, kubeconfig
        self.namespace = f"seed-{seed}"
        self._url = f"{server.url}/api/v1/namespaces/{self.namespace}/configmaps"
        self._namespaces = f"{server.url}/api/v1/namespaces"
        self._running: set[asyncop.Request] = set()
        self.reconciled: dict[str, tuple[str, dict[str, str]]] = {}
        self.gone: dict[str, set[str]] = {}
        self.faults: list[str] = []
        self._count = 0

        @asyncop.reconciler(ConfigMap, name="keep-up")
        async def keep_up(obj: ConfigMap, ctx: asyncop.Context) -> None:
            if ctx.request in self._running:
                self.faults.append(f"{ctx.request} ran twice at once")
            self._running.add(ctx.request)
            try:
                await asyncio.sleep(self._random.choice((0, 0, 0.01)))
                self.reconciled[obj.metadata.name] = (obj.metadata.uid, obj.data)
                if self._random.random() < 0.1:
                    raise RuntimeError("now and then")
            finally:
                self._running.discard(ctx.request)

        @keep_up.gone
        async def tell(last: ConfigMap, ctx: asyncop.Context) -> None:
            self.gone.setdefault(last.metadata.name, set()).add(last.metadata.uid)

        self._reconciler = keep_up

    async def play(self) -> None:
        """All steps, over two lives of the operator, then rest."""
        await self._session.post(self._namespaces, json={"metadata": {"name": self.namespace}})
        async with self._operator():
            for _ in range(STEPS // 2):
                await self._step()
        for _ in range(3):
            await self._step()  # while nobody looks
        async with self._operator() as manager:
            for _ in range(STEPS // 2):
                await self._step()
            await self._rest(manager)

    async def _step(self) -> None:
        name = self._random.choice(NAMES)
        self._count += 1
        change = {"data": {"n": str(self._count)}}
        match self._random.choice(("create", "create", "change", "change", "change", "delete", "rebirth")):
            case "create":
                await self._send("POST", self._url, {"metadata": {"name": name}, **change})
            case "change":
                await self._send("PATCH", f"{self._url}/{name}", change)
            case "delete":
                await self._send("DELETE", f"{self._url}/{name}", None)
            case "rebirth":
                await self._send("DELETE", f"{self._url}/{name}", None)
                await self._send("POST", self._url, {"metadata": {"name": name}, **change})
        await asyncio.sleep(self._random.choice((0, 0.01, 0.05, 0.2)))

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> None:
        """Whether it succeeds doesn't matter: what is there at the end does."""
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        data = msgspec.json.encode(body) if body is not None else None
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.request(method, url, data=data, headers=headers) as response:
                await response.read()

    @contextlib.asynccontextmanager
    async def _operator(self) -> AsyncIterator[asyncop.Manager]:
        options = asyncop.ManagerOptions(
            name=self.namespace, namespaces=(self.namespace,), kubeconfig=str(self._kubeconfig)
        )
        manager = asyncop.Manager(reconcilers=[self._reconciler], options=options)
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            if await running != 0:
                self.faults.append("the operator did not end cleanly")

    async def _rest(self, manager: asyncop.Manager) -> None:
        """Wait until what was reconciled last is what the server has, for every object, and the store equals a list."""
        deadline = asyncio.get_running_loop().time() + LIMIT
        while problems := await self._problems(manager):
            if asyncio.get_running_loop().time() > deadline:
                self.faults += problems
                return
            await asyncio.sleep(0.25)

    async def _problems(self, manager: asyncop.Manager) -> list[str]:
        try:
            async with self._session.get(self._url) as response:
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return [f"the server can't be asked: {error!r}"]
        if "items" not in answer:
            return [f"the server can't be asked: {answer}"]
        items = answer["items"]
        there = {item["metadata"]["name"]: item for item in items}
        cached = self._cached(manager)
        problems = []
        if cached != {name: item["metadata"]["resourceVersion"] for name, item in there.items()}:
            problems.append(f"the store has {cached}, the server {sorted(there)}")
        for name, item in there.items():
            wanted = (item["metadata"]["uid"], item.get("data", {}))
            if self.reconciled.get(name) != wanted:
                problems.append(f"{name} was reconciled as {self.reconciled.get(name)}, it is {wanted}")
        return problems

    def _cached(self, manager: asyncop.Manager) -> dict[str, str]:
        operation = manager._operation
        informers = operation.informers if operation else []
        return {
            request.name: record.metadata.resource_version
            for informer in informers
            for request, record in informer.store.items()
        }


async def disturb(server: ApiServer, seed: int) -> None:
    """Faults for everybody, until cancelled."""
    chance = random.Random(seed)
    faults = server.faults
    resource = "configmaps"
    acts: list[Callable[[], None]] = [
        lambda: faults.expire_versions(resource),
        lambda: faults.cut(resource),
        lambda: faults.reset_watches(resource),
        lambda: faults.end_watches(resource),
        lambda: faults.fail_watches(resource, 410),
        lambda: faults.answer(500, resource, verb="list", times=3),
        lambda: faults.answer(429, resource, times=3, retry_after=0.2),
        lambda: faults.answer(410, resource, verb="watch", times=3),
        lambda: faults.reset(resource, times=3),
        lambda: faults.send_line(b"<html>", resource),
        lambda: faults.delay(0.2, resource, times=5),
        faults.hold_events,
        faults.release_events,
    ]
    while True:
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        chance.choice(acts)()  # in force when it returns, so nothing follows the last `lift`


async def run(seeds: list[int]) -> list[str]:
    """Play all seeds at once; what went wrong, by seed."""
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        kubeconfig = server.write_kubeconfig(Path(folder) / "kubeconfig")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            worlds = [World(seed, server, kubeconfig, session) for seed in seeds]
            disturbing = asyncio.create_task(_disturb_for_a_while(server, seeds[0]))
            await asyncio.gather(*(world.play() for world in worlds), disturbing)
    return [f"seed {world.seed}: {fault}" for world in worlds for fault in world.faults]


async def _disturb_for_a_while(server: ApiServer, seed: int) -> None:
    """About as long as the steps take; then everything may come to rest."""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STEPS * 0.08):
                await disturb(server, seed)
    finally:
        server.faults.lift()


def main() -> int:
    """Run fresh seeds in batches; prints what went wrong and the command that repeats it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbelow(1_000_000)
    for start in range(first, first + count, AT_ONCE):
        seeds = list(range(start, min(start + AT_ONCE, first + count)))
        faults = asyncio.run(run(seeds))
        print(f"seeds {seeds[0]}-{seeds[-1]}: {len(faults)} faults", flush=True)
        if faults:
            print("\n".join(faults), f"repeat: python -m tests.cases.convergence {len(seeds)} {seeds[0]}", sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
