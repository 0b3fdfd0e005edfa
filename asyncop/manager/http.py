"""The two HTTP servers of a process: probes for the kubelet, metrics for Prometheus.

They live on the operator's own event loop on purpose: a loop that is blocked answers no probe. Every answer is made at
once from what is in memory, so probes stay cheap and never depend on the API server.

Health: `/startupz`, `/livez` (alias `/healthz`), `/readyz`, in kube-apiserver's grammar: `ok`, or each check in a line
of its own when one fails or with `?verbose`; `?exclude=NAME` leaves one out, `/readyz/NAME` asks one alone. 200 or 503.
`/debug/objects/RESOURCE/NAMESPACE/NAME`, from loopback only: what controllers know of an object. Metrics: `/metrics`.

An address is `HOST:PORT`, `[HOST]:PORT` or `:PORT` (every interface); port 0 picks a free one; `0` or nothing is off.
The two servers need addresses of their own.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from asyncop import metrics
from asyncop.api.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

log = structlog.get_logger("asyncop.manager")

SHUTDOWN_TIMEOUT = 1.0  # seconds; no handler here ever waits

PROBES = ("startupz", "livez", "readyz")
Check = Callable[[], str | None]
"""None while all is well, else the reason, as one line."""

Describe = Callable[[str, str, str], "dict[str, Any]"]
"""What is known of an object, by resource, namespace and name; None if nobody reads that resource."""

DEBUG = "/debug/objects/"
_PATHS = {probe: probe for probe in PROBES} | {"healthz": "livez"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    """Empty: every interface."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Read an address; None if the server is off.

        Raises:
            ConfigError: it is none.
        """
        if text in ("", "0"):
            return None
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
            raise ConfigError(f"{text!r} is not an address; write HOST:PORT, [IPV6]:PORT, :PORT, or 0 for off")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Checks:
    """Named checks, each for one or more probes."""

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Check]] = {probe: {} for probe in PROBES}

    def add(self, name: str, probes: Collection[str], check: Check) -> None:
        """Ask `check` whenever one of `probes` (of `PROBES`) comes; it must not wait. Replaces one of the same name."""
        for probe in probes:
            self._checks[probe][name] = check

    def of(self, probe: str) -> dict[str, Check]:
        """The checks of one probe, in the order they were added."""
        return self._checks[probe]


class _Server:
    """One listening socket and what answers on it."""

    purpose = ""

    def __init__(self, address: str) -> None:
        self._address = Address.parse(address)
        self._runner: web.ServerRunner | None = None

    async def start(self) -> tuple[str, int] | None:
        """Listen; returns the host and the port, or None if the address says off.

        Raises:
            ConfigError: the address can't be listened on, as one line.
        """
        if self._address is None:
            return None
        listener = _listen(self._address, self.purpose)
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=SHUTDOWN_TIMEOUT)
        self._runner = runner
        await runner.setup()
        await web.SockSite(runner, listener).start()
        host, port = self._address.host, int(listener.getsockname()[1])
        log.info(f"Serving {self.purpose}", address=str(Address(host, port)))
        return host, port

    async def aclose(self) -> None:
        """Stop listening and close every connection. Does nothing if it doesn't listen."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return _text(405, "only GET and HEAD")
        return self._get(request)

    def _get(self, request: web.BaseRequest) -> web.Response:
        raise NotImplementedError


class HealthServer(_Server):
    """Answers the kubelet's probes."""

    purpose = "health probes"

    def __init__(self, address: str, checks: Checks, describe: Describe | None = None) -> None:
        super().__init__(address)
        self._checks, self._describe = checks, describe

    def _get(self, request: web.BaseRequest) -> web.Response:
        if request.path.startswith(DEBUG) and self._describe is not None:
            return _object(request, self._describe)
        name, _, single = request.path.lstrip("/").partition("/")
        probe = _PATHS.get(name)
        if probe is None:
            return _text(404, "there are /startupz, /livez and /readyz")
        checks = self._checks.of(probe)
        if single:
            if single not in checks:
                return _text(404, f"{name} has no check {single}; there are: {', '.join(checks) or 'none'}")
            problem = checks[single]()
            return _text(200, "ok") if problem is None else _text(503, f"{single} failed: {problem}")
        return _summary(name, checks, request)


class MetricsServer(_Server):
    """Answers Prometheus."""

    purpose = "metrics"

    def __init__(self, address: str, render: Callable[[], tuple[bytes, str]] = metrics.render) -> None:
        super().__init__(address)
        self._render = render

    def _get(self, request: web.BaseRequest) -> web.Response:
        if request.path != "/metrics":
            return _text(404, "there is /metrics")
        text, content_type = self._render()
        return web.Response(body=text, headers={"Content-Type": content_type})


def shared_port(first: str, second: str) -> int | None:
    """The port on which two addresses get into each other's way, as far as they tell; None if they don't."""
    one, other = Address.parse(first), Address.parse(second)
    if one is None or other is None or one.port != other.port or one.port == 0:
        return None
    return one.port if one.host == other.host or not (one.host and other.host) else None


def _summary(name: str, checks: dict[str, Check], request: web.BaseRequest) -> web.Response:
    """All checks of a probe, in kube-apiserver's words."""
    excluded = set(request.query.getall("exclude", ()))
    lines: list[str] = []
    is_ok = True
    for check_name, check in checks.items():
        if check_name in excluded:
            lines.append(f"[+]{check_name} excluded: ok")
        elif (problem := check()) is None:
            lines.append(f"[+]{check_name} ok")
        else:
            is_ok = False
            lines.append(f"[-]{check_name} failed: {problem}")
    if is_ok and "verbose" not in request.query:
        return _text(200, "ok")
    lines += [f"warn: no check {unknown} to exclude" for unknown in sorted(excluded - checks.keys())]
    lines.append(f"{name} check {'passed' if is_ok else 'failed'}")
    return _text(200 if is_ok else 503, "\n".join(lines))


def _object(request: web.BaseRequest, describe: Describe) -> web.Response:
    """`/debug/objects/RESOURCE/NAMESPACE/NAME`, for whoever is on this machine or has a port-forward to the Pod."""
    address = ipaddress.ip_address(request.remote or "0.0.0.0")
    address = getattr(address, "ipv4_mapped", None) or address  # how an IPv4 peer looks on a dual-stack socket
    if not address.is_loopback:
        return _text(403, "only from loopback: kubectl port-forward")
    parts = request.path.removeprefix(DEBUG).split("/")
    if len(parts) != 3 or not all(parts):
        return _text(404, f"{DEBUG}RESOURCE/NAMESPACE/NAME, with - as the namespace of cluster-scoped resources")
    try:
        return web.json_response(describe(*parts))
    except LookupError as error:
        return _text(404, str(error))


def _text(status: int, text: str) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def _listen(address: Address, purpose: str) -> socket.socket:
    """A listening socket; on every interface it takes IPv4 and IPv6 alike, where there is IPv6."""
    try:
        if not address.host and socket.has_dualstack_ipv6():
            with contextlib.suppress(_NoIpv6Error):
                return _dual_stack(address.port)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        reason = f"port {address.port} is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ConfigError(f"can't serve {purpose} at {address}: {reason}") from error


class _NoIpv6Error(Exception):
    """The kernel knows IPv6 but this host has it switched off."""


def _dual_stack(port: int) -> socket.socket:
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise _NoIpv6Error from error
        raise
