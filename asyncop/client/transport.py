"""HTTP to one API server: calls with a time limit and careful retries, and streams.

Promises: every call ends within its time limit, as an answer or as an error of `asyncop.api.errors`; nothing of aiohttp
shows. What is retried, `retry` says. Cancelling a call or leaving a stream closes its connection, and `aclose` closes
all; what of a request has not reached the server by then never will, also if the network comes back later. Calls and
streams have connections of their own, so that watches never starve calls. URLs, bodies and their meaning are left to
`client`; backing off from a stream that fails, to its reader.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from asyncop.api.errors import ApiError, ConfigError, TransportError, UnauthorizedError, api_error
from asyncop.client.credentials import Credentials
from asyncop.client.rate_limit import Gate
from asyncop.client.retry import Retries, UnreachedError, UntrustedError
from asyncop.client.wire import decode_status
from asyncop.metrics import rest_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from asyncop.client.config import Connection
    from asyncop.client.credentials import Access
    from asyncop.client.rate_limit import RateLimit

    Params = Mapping[str, str] | Sequence[tuple[str, str]]

TIMEOUT = 30.0  # client-go's dialer and kubectl's usual patience
CONNECT_TIMEOUT = 10.0  # leaves room for another try within TIMEOUT
MAX_CONNECTIONS = 64
KEEP_ALIVE = 30.0  # shorter than the idle limits of the API server (90 s) and of common load balancers (60 s)
# Seconds until the kernel asks a silent peer, between two questions, and how many go unanswered; then the limit in
# milliseconds for what was sent and not acknowledged. Together what client-go's HTTP/2 pings achieve (45 s).
PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 50_000}
CALL_BUFFER_BYTES = 4 << 20  # a page of 500 Pods arrives without pausing the socket
STREAM_BUFFER_BYTES = 1 << 20


class _BrokenError(aiohttp.ClientError):
    """The connection broke when the request may have been sent already."""


async def _no_resend(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT or DELETE on a fresh connection when a kept-alive one breaks.

    The first may have been carried out; `retry` decides what is sent twice.
    """
    try:
        return await send(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientSSLError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError(str(error)) from error


class _Connector(aiohttp.TCPConnector):
    """Aborts the connection of a request that fails or is cancelled.

    aiohttp would close it in the orderly way of TLS, and the kernel go on to send what it has: on a link that is mended
    within a minute, a write would arrive long after the lead that it needed was lost.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, keepalive_timeout=KEEP_ALIVE, socket_factory=_socket)
        self._carriers: dict[aiohttp.ClientRequest, asyncio.Transport | None] = {}

    async def connect(self, req: aiohttp.ClientRequest, *args: Any, **named: Any) -> Any:
        connection = await super().connect(req, *args, **named)
        self._carriers[req] = connection.transport
        return connection

    async def carry(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """The middleware that sees each request through."""
        try:
            return await send(request)
        except BaseException:
            carrier = self._carriers.get(request)
            if carrier is not None:
                carrier.abort()
            raise
        finally:
            self._carriers.pop(request, None)


class Stream:
    """The body of an answer that goes on; made by `Transport.stream`."""

    def __init__(self, response: aiohttp.ClientResponse, idle: float | None, transport: Transport) -> None:
        self._content, self._idle, self._transport = response.content, idle, transport
        self._what = f"{response.method} {response.url.path}"

    async def chunk(self) -> bytes:
        """The next bytes, as many as there are; empty at the end.

        Raises:
            TransportError: the connection broke, or nothing came for `idle` seconds.
        """
        time_limit = asyncio.timeout(self._idle)
        try:
            data = self._content.read_nowait()  # without the cost of a timer, when there is more already
            if data:
                return data
            async with time_limit:
                return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            if time_limit.expired():
                raise TransportError(f"{self._what}: the server fell silent for {self._idle:g} s") from error
            raise self._transport.translate(self._what, error) from error


class Transport:
    """The connections to one API server.

    It opens them on first use, in the loop that runs then, and belongs to that loop; whoever makes it closes it.

    Args:
        connection: as `load_connection` gives it.
        user_agent: sent with each request; shows in the server's audit log.
        timeout: seconds for a call that names no limit of its own, all its retries included.
        rate_limit: of everything that is sent; None: the server's own priority and fairness is enough.

    Raises:
        ConfigError: the server's URL, TLS files or the proxy can't be used.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        timeout: float = TIMEOUT,
        rate_limit: RateLimit | None = None,
    ) -> None:
        self.connection, self.timeout = connection, timeout
        self.host = _authority(connection)
        """`HOST:PORT` as the server's URL has it; a label of the metrics."""
        self._user_agent = user_agent
        self._options = _request_options(connection)
        self._credentials = Credentials(connection)
        self._gate = Gate(rate_limit) if rate_limit is not None else None
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._is_closed = False

    async def request(  # noqa: PLR0913 - one HTTP request has as many independent parts
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> bytes:
        """Make one call, again where `retry` allows it, and return the body of its answer.

        `repeatable` says of a write that doing it twice is as good as once.

        Cancelled, it may have been carried out or not.

        Raises:
            ApiError: the server answered with a failure.
            TransportError: no answer within `timeout` seconds, retries included.
        """
        self._check_open()
        limit = self.timeout if timeout is None else timeout
        url = self._url(path, params)
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        try:
            async with asyncio.timeout(limit) as time_limit:
                retries = Retries(method, repeatable=repeatable)
                return await self._persist(retries, time_limit.when(), method, url, headers, body)
        except TimeoutError as error:
            raise TransportError(f"{method} {url.path} at {self.host}: no answer within {limit:g} s") from error

    async def _persist(self, retries: Retries, deadline: float | None, *request: Any) -> bytes:
        now = asyncio.get_running_loop().time
        while True:
            try:
                async with self._answer("calls", *request) as response:
                    return await self._body(response)
            except (ApiError, TransportError) as error:
                delay = retries.delay_after(error)
                if delay is None or (deadline is not None and now() + delay >= deadline):
                    raise  # what went wrong says more than that time ran out
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Params = (),
        accept: str = "application/json",
        timeout: float | None = None,
        idle: float | None = None,
    ) -> AsyncIterator[Stream]:
        """Open an answer that goes on, e.g. a watch; leaving the block closes it.

        `timeout` bounds the wait for its first line, `idle` the silence between two chunks, in seconds. Nothing is
        retried but what new credentials mend.

        Raises:
            ApiError: the server answered with a failure.
            TransportError: no connection, or no answer in time.
        """
        self._check_open()
        limit = self.timeout if timeout is None else timeout
        url = self._url(path, params)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limit):
                    answer = self._answer("streams", "GET", url, {"Accept": accept}, None)
                    response = await stack.enter_async_context(answer)
            except TimeoutError as error:
                raise TransportError(f"GET {url.path} at {self.host}: no answer within {limit:g} s") from error
            yield Stream(response, idle, self)

    async def aclose(self) -> None:
        """Close all connections; calls and streams still open fail. May be called twice."""
        self._is_closed = True
        async with AsyncExitStack() as stack:  # closes the second also when cancelled in the first
            stack.push_async_callback(self._credentials.aclose)
            while self._sessions:
                stack.push_async_callback(self._sessions.popitem()[1].close)

    @asynccontextmanager
    async def _answer(
        self, pool: str, method: str, url: URL, headers: dict[str, str], body: bytes | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A good answer, its body unread; sent again once if reading credentials or authority anew brings others."""
        access = await self._credentials.access()
        try:
            response = await self._send(pool, method, url, headers, body, access)
        except UnauthorizedError:
            if not await self._credentials.renew(access):
                raise
            response = await self._send(pool, method, url, headers, body, await self._credentials.access())
        except UntrustedError:  # found out before anything was sent
            if not self._credentials.trust_anew(access):
                raise
            response = await self._send(pool, method, url, headers, body, await self._credentials.access())
        try:
            yield response
        finally:
            _drop(response)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self.translate(f"{response.method} {response.url.path}", error) from error

    async def _send(
        self, pool: str, method: str, url: URL, headers: dict[str, str], body: bytes | None, access: Access
    ) -> aiohttp.ClientResponse:
        """One request, until its answer's headers; a failure is raised."""
        if self._gate is not None:
            await self._gate.pass_through()
        session = self._session(pool)
        all_headers = [*headers.items(), *access.headers]
        options = self._options if access.tls is None else {**self._options, "ssl": access.tls}
        now = asyncio.get_running_loop().time
        started, code = now(), "<error>"  # client-go's word
        try:
            response = await session.request(method, url, headers=all_headers, data=body, **options)
            code = str(response.status)
            if response.status < 300:
                return response
            async with response:
                raise _failure(response, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise self.translate(f"{method} {url.path}", error) from error
        except ValueError as error:  # a token with a line break in it, a host that can't be one
            raise UntrustedError(f"{method} {url.path} at {self.host} can't be sent: {error}") from error
        finally:
            rest_client.observe(method, self.host, code, now() - started)

    def _session(self, pool: str) -> aiohttp.ClientSession:
        self._check_open()
        session = self._sessions.get(pool)
        if session is None:
            is_calls = pool == "calls"
            connector = _Connector(limit=MAX_CONNECTIONS if is_calls else 0)
            session = self._sessions[pool] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                # Uncompressed: inflating a page of Pods costs at least half the CPU of decoding it.
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT),
                read_bufsize=CALL_BUFFER_BYTES if is_calls else STREAM_BUFFER_BYTES,
                middlewares=(_no_resend, connector.carry),
            )
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise TransportError(f"the client of {self.host} is closed")

    def _url(self, path: str, params: Params) -> URL:
        url = URL(self.connection.server + path)
        return url.extend_query(params) if params else url

    def translate(self, what: str, error: Exception) -> TransportError:
        """The TransportError that stands for an error of aiohttp, ssl or the system; `what` begins its message."""
        text = f"{what} at {self.host}: {_reason(error)}"
        is_cut_short = isinstance(getattr(error, "os_error", None), (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)) and not is_cut_short:
            return UntrustedError(text)
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
            return UnreachedError(text)
        return TransportError(text)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose kernel notices within about a minute that the other side has vanished without a word.

    A watch may be silent for as long as nothing changes, so its silence alone proves nothing. When it is closed, also
    by the death of the process, what the kernel has not yet got acknowledged is forgotten.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed, it sends nothing any more
    for name, value in PROBES.items():
        if hasattr(socket, name):  # Linux has all of them, others some
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _drop(response: aiohttp.ClientResponse) -> None:
    """Be done with an answer; one whose body was read to its end has given its connection back already.

    The others' connections are aborted: an orderly end of TLS would wait for the server, beyond our own `aclose`.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _authority(connection: Connection) -> str:
    try:
        return URL(connection.server).authority
    except ValueError as error:
        raise ConfigError(f"{connection.source}: server {connection.server!r} is not a URL: {error}") from error


def _request_options(connection: Connection) -> dict[str, Any]:
    """What each request of a connection passes to aiohttp."""
    configuration = connection.configuration
    options: dict[str, Any] = {"allow_redirects": False}  # an API server sends none; a login page would
    if configuration.tls_server_name:
        options["server_hostname"] = configuration.tls_server_name
    if connection.proxy:
        options["proxy"] = connection.proxy
    return options


def _failure(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    location = response.headers.get("Location")
    if response.status < 400:
        return api_error(response.status, "", f"redirected to {location}: this doesn't look like an API server")
    return decode_status(body, response.status, _seconds(response.headers.get("Retry-After")))


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None  # a date: API servers send seconds


def _reason(error: BaseException) -> str:
    """What happened, in the system's own words where there are some."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate can't be trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        reason = getattr(error.os_error, "reason", None)
        return f"TLS failed: {reason.replace('_', ' ').lower() if reason else error.os_error}"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {CONNECT_TIMEOUT:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        return os.strerror(number) if number > 0 else str(error.os_error.strerror or error.os_error)  # < 0: of DNS
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut short"
    return str(error) or type(error).__name__
