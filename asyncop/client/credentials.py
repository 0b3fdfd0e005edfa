"""The headers that say who we are, kept fresh.

A service account's token file is read again every minute (kubernetes_asyncio's hook does it). When the server says 401
the credentials are read anew, once for all requests that were refused with the same ones. A client certificate is part
of the TLS context and stays what it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import ConfigError
from asyncop.client.door import open_door
from asyncop.client.log import log

if TYPE_CHECKING:
    from asyncop.client.config import Connection


class Credentials:
    """The current credentials of one connection."""

    def __init__(self, connection: Connection) -> None:
        open_door()
        from kubernetes_asyncio.config import ConfigException

        self._faults = (OSError, ConfigException, ValueError)  # the last: bytes that are no text
        self._connection = connection
        self._configuration: Any = connection.configuration
        self._renewing = asyncio.Lock()
        self.generation = 0
        """Counts the renewals; take it before a request, give it to `renew` if the request was refused."""

    async def headers(self) -> list[tuple[str, str]]:
        """Authorization and impersonation, as of now."""
        configuration = self._configuration
        try:
            await configuration.auth_settings()  # runs the hook that reads a token file again
        except self._faults as error:
            log().warning("Using the old token", source=self._connection.source, err=str(error))
        token = configuration.api_key.get("BearerToken")
        if not token:
            return list(self._connection.headers)
        return [("Authorization", token.strip()), *self._connection.headers]  # token files may end in a newline

    async def renew(self, refused: int) -> bool:
        """Read the credentials anew, since those of the generation `refused` were; whether to try again."""
        reload = self._connection.reload
        if reload is None:
            return False
        async with self._renewing:
            if self.generation != refused:
                return True  # another request has done it meanwhile
            try:
                self._configuration = await reload()
            except ConfigError as error:
                log().warning("Could not re-read credentials", source=self._connection.source, err=str(error))
                return False
            self.generation += 1
            return True
