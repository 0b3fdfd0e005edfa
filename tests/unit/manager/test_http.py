"""The health and metrics servers over real sockets, and the event loop's lag."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from asyncop.api.errors import ConfigError
from asyncop.manager.http import Address, Checks, HealthServer, MetricsServer, shared_port
from asyncop.manager.loop_lag import PERIOD, LoopLag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANY = "127.0.0.1:0"


@asynccontextmanager
async def served(server: HealthServer | MetricsServer) -> AsyncIterator[str]:
    where = await server.start()
    assert where is not None
    try:
        yield f"http://{where[0] or '127.0.0.1'}:{where[1]}"
    finally:
        await server.aclose()


async def get(url: str, method: str = "GET") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        return answer.status, await answer.text()


def checks_with(**problems: str | None) -> Checks:
    checks = Checks()
    for name, problem in problems.items():
        checks.add(name, ("readyz",), lambda problem=problem: problem)
    return checks


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/startupz", "/livez", "/healthz", "/readyz"])
async def test_a_probe_without_failing_checks_is_ok(path: str) -> None:
    async with served(HealthServer(ANY, Checks())) as url:
        assert await get(url + path) == (200, "ok\n")
        assert await get(url + path, "HEAD") == (200, "")


@pytest.mark.asyncio
async def test_verbose_lists_the_checks_as_kube_apiserver_does() -> None:
    async with served(HealthServer(ANY, checks_with(caches=None, shutdown=None))) as url:
        expected = "[+]caches ok\n[+]shutdown ok\nreadyz check passed\n"
        assert await get(f"{url}/readyz?verbose") == (200, expected)
        assert await get(f"{url}/readyz?verbose=1") == (200, expected)


@pytest.mark.asyncio
async def test_a_failing_check_fails_its_probe_alone_and_is_named() -> None:
    async with served(HealthServer(ANY, checks_with(caches="pods: 403", shutdown=None))) as url:
        expected = "[-]caches failed: pods: 403\n[+]shutdown ok\nreadyz check failed\n"
        assert await get(f"{url}/readyz") == (503, expected)
        assert await get(f"{url}/livez") == (200, "ok\n")
        assert (await get(f"{url}/readyz", "HEAD"))[0] == 503


@pytest.mark.asyncio
async def test_healthz_is_livez_under_its_old_name() -> None:
    checks = Checks()
    checks.add("event-loop", ("livez",), lambda: "blocked")
    async with served(HealthServer(ANY, checks)) as url:
        assert await get(f"{url}/healthz") == (503, "[-]event-loop failed: blocked\nhealthz check failed\n")


@pytest.mark.asyncio
async def test_checks_can_be_left_out_and_asked_alone() -> None:
    async with served(HealthServer(ANY, checks_with(caches="no", shutdown=None))) as url:
        assert await get(f"{url}/readyz?exclude=caches") == (200, "ok\n")
        verbose = "[+]caches excluded: ok\n[+]shutdown ok\nwarn: no check x to exclude\nreadyz check passed\n"
        assert await get(f"{url}/readyz?verbose&exclude=caches&exclude=x") == (200, verbose)
        assert await get(f"{url}/readyz/shutdown") == (200, "ok\n")
        assert await get(f"{url}/readyz/caches") == (503, "caches failed: no\n")
        assert await get(f"{url}/readyz/x") == (404, "readyz has no check x; there are: caches, shutdown\n")


@pytest.mark.asyncio
async def test_other_paths_and_methods_are_refused() -> None:
    async with served(HealthServer(ANY, Checks())) as url:
        assert (await get(f"{url}/"))[0] == 404
        assert (await get(f"{url}/metrics"))[0] == 404
        assert (await get(f"{url}/livez", "POST"))[0] == 405
    async with served(MetricsServer(ANY)) as url:
        assert (await get(f"{url}/livez"))[0] == 404


@pytest.mark.asyncio
async def test_a_check_is_asked_at_each_probe() -> None:
    problems: list[str | None] = ["first", None]
    checks = Checks()
    checks.add("once", ("readyz",), lambda: problems.pop(0))
    async with served(HealthServer(ANY, checks)) as url:
        assert (await get(f"{url}/readyz"))[0] == 503
        assert (await get(f"{url}/readyz"))[0] == 200


@pytest.mark.asyncio
async def test_metrics_are_served_in_prometheus_format() -> None:
    server = MetricsServer(ANY)
    async with served(server) as url, aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "# TYPE asyncop_build_info gauge" in await answer.text()


@pytest.mark.asyncio
async def test_an_empty_host_takes_ipv4_and_ipv6_on_one_port() -> None:
    server = HealthServer(":0", Checks())
    where = await server.start()
    assert where is not None
    try:
        assert (await get(f"http://127.0.0.1:{where[1]}/livez"))[0] == 200
        if socket.has_dualstack_ipv6():
            assert (await get(f"http://[::1]:{where[1]}/livez"))[0] == 200
    finally:
        await server.aclose()


@pytest.mark.asyncio
@pytest.mark.parametrize("off", ["", "0"])
async def test_a_server_that_is_off_does_nothing(off: str) -> None:
    server = HealthServer(off, Checks())

    assert await server.start() is None
    await server.aclose()


@pytest.mark.asyncio
async def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^can't serve metrics at 127.0.0.1:{port}: port {port} is in use$"):
            await MetricsServer(f"127.0.0.1:{port}").start()


@pytest.mark.asyncio
async def test_an_address_of_another_machine_is_told_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^can't serve health probes at 192.0.2.1:0: "):
        await HealthServer("192.0.2.1:0", Checks()).start()


@pytest.mark.asyncio
async def test_a_closed_port_can_be_taken_again_at_once() -> None:
    first = HealthServer(ANY, Checks())
    where = await first.start()
    assert where is not None
    url = f"http://{where[0]}:{where[1]}"
    async with aiohttp.ClientSession() as session, session.get(f"{url}/livez"):
        await first.aclose()
    async with served(HealthServer(f"127.0.0.1:{where[1]}", Checks())):
        assert (await get(f"{url}/livez"))[0] == 200


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", Address("", 8081)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("localhost:80", Address("localhost", 80)),
        ("", None),
        ("0", None),
    ],
)
def test_addresses_are_read(text: str, address: Address | None) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["8080", ":", "host", "host:", ":http", ":65536", ":-1", "::1:80", "[::1]", ":٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address; write HOST:PORT"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("first", "second", "port"),
    [
        (":8080", ":8080", 8080),
        (":8080", "127.0.0.1:8080", 8080),
        ("127.0.0.1:8080", "127.0.0.2:8080", None),
        (":8080", ":8081", None),
        (":0", ":0", None),
        ("0", ":8080", None),
    ],
)
def test_two_servers_cannot_share_a_port(first: str, second: str, port: int | None) -> None:
    assert shared_port(first, second) == port


# -- the event loop's lag


@pytest.mark.asyncio
async def test_a_loop_that_runs_is_no_problem() -> None:
    lag = LoopLag(limit=0.5)

    assert lag.problem() is None
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(lag.run())
        await asyncio.sleep(0)
        assert lag.problem() is None
        task.cancel()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_loop_that_was_blocked_is_a_problem_at_once_and_for_a_while() -> None:
    lag = LoopLag(limit=0.2)
    measured = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(lag.run())
        await asyncio.sleep(0)
        time.sleep(PERIOD + 0.5)  # noqa: ASYNC251 - blocking the loop is the case
        assert "blocked for" in (lag.problem() or "")
        asyncio.get_running_loop().call_later(PERIOD / 2, measured.set)
        await measured.wait()  # the lag has been measured meanwhile
        assert "blocked for" in (lag.problem() or "")
        task.cancel()
    assert lag.problem() is None
