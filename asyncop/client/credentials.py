"""Who we are to the API server, kept fresh: the headers and the TLS context that each request takes along.

A token file is read again every minute, as are the files behind the TLS context; an exec plugin is asked in time. When
the server says 401, or shows a certificate that we don't trust, everything is read anew at once: one time for all
requests that failed with the same credentials. If that changes nothing, the failure stands. What can't be read
leaves the old in force, with a warning; what the sources are, `config` decides.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncop.api.errors import ConfigError, TransportError
from asyncop.client.log import log
from asyncop.client.sign_in import REREAD_AFTER, Fixed, Identity
from asyncop.client.tls import Tls

if TYPE_CHECKING:
    import ssl

    from asyncop.client.config import Connection
    from asyncop.client.sign_in import SignIn


class Access(NamedTuple):
    """What one request takes along."""

    headers: list[tuple[str, str]]
    tls: ssl.SSLContext | None
    generation: int
    """Tells `Credentials.renew` what has failed."""


class Credentials:
    """The current credentials of one connection.

    Raises:
        ConfigError: a certificate or key can't be used.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sign_in = connection.sign_in or _configured(connection.configuration)
        self._identity: Identity | None = None
        self._tls = Tls(connection)
        self._tls_read_at: float | None = None
        self._generation = 0
        self._renewing = asyncio.Lock()

    async def access(self) -> Access:
        """Headers and TLS context as of now.

        Raises:
            TransportError: the source of the credentials has none.
        """
        self._take(await self._sign_in.current())
        now = asyncio.get_running_loop().time()
        if self._tls_read_at is None:
            self._tls_read_at = now
        elif now - self._tls_read_at >= REREAD_AFTER:
            self._reread_tls()
        return self._access()

    async def renew(self, refused: Access) -> bool:
        """Read everything anew, since the server has refused `refused`; whether that changed anything."""
        async with self._renewing:
            if self._generation != refused.generation:
                return True  # another request has seen to it meanwhile
            try:
                self._take(await self._sign_in.renew())
            except (ConfigError, TransportError) as error:
                log().warning("Could not renew credentials", source=self._connection.source, err=str(error))
            self._reread_tls()
            return self._generation != refused.generation

    def trust_anew(self, distrusted: Access) -> bool:
        """Read the authority anew, since we didn't trust the server; whether that changed anything."""
        if self._generation == distrusted.generation:
            self._reread_tls()
        return self._generation != distrusted.generation

    async def aclose(self) -> None:
        """End what the source of the credentials is doing."""
        await self._sign_in.aclose()

    def _access(self) -> Access:
        assert self._identity is not None
        headers = list(self._connection.headers)
        if self._identity.authorization:
            headers.insert(0, ("Authorization", self._identity.authorization))
        return Access(headers, self._tls.context, self._generation)

    def _take(self, identity: Identity) -> None:
        if identity == self._identity:
            return
        is_first, self._identity = self._identity is None, identity
        try:
            self._tls.show(identity.certificate)
        except ConfigError as error:
            if is_first:
                self._identity = None
                raise TransportError(str(error)) from error
            log().warning("Using the old client certificate", err=str(error))
        self._generation += 1

    def _reread_tls(self) -> None:
        self._tls_read_at = asyncio.get_running_loop().time()
        try:
            if self._tls.reread():
                self._generation += 1
                log().info("Certificates were renewed", source=self._connection.source)
        except ConfigError as error:
            log().warning("Using the old certificates", err=str(error))


def _configured(configuration: Any) -> SignIn:
    token = configuration.api_key.get("BearerToken") or ""
    return Fixed(Identity(token.strip()))
