"""Where credentials come from: one that is given once, or a token file that somebody replaces.

`exec_plugin` has the third source. Each keeps what it has had last; when to ask for newer, it decides for as long as
nothing is refused, and `credentials` when something is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncop.api.errors import ConfigError
from asyncop.client.log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

REREAD_AFTER = 60.0  # seconds; client-go's for token files. The kubelet swaps them with a fifth of their life left


class Identity(NamedTuple):
    """What proves who we are; empty parts aren't sent."""

    authorization: str = ""
    """The whole value of the header: a secret."""
    certificate: bytes = b""
    """A client certificate and its key in PEM, in place of files: a secret."""


class SignIn(Protocol):
    """A source of credentials. Both calls may take long, but end."""

    async def current(self) -> Identity:
        """What to send now.

        Raises:
            TransportError: there is nothing to send that could be valid.
        """
        ...

    async def renew(self) -> Identity:
        """What to send now that the last was refused; the same again if there is nothing newer.

        Raises:
            ConfigError: it can't be had.
        """
        ...

    async def aclose(self) -> None:
        """End what is going on. It may be used again after that."""
        ...


class Fixed:
    """Credentials that come from a file or a provider which is asked anew only when they are refused."""

    def __init__(self, identity: Identity, reload: Callable[[], Awaitable[Identity]] | None = None) -> None:
        self._identity, self._reload = identity, reload

    async def current(self) -> Identity:
        """The last that was had."""
        return self._identity

    async def renew(self) -> Identity:
        """Ask for another, if there is anybody to ask."""
        if self._reload is not None:
            self._identity = await self._reload()
        return self._identity

    async def aclose(self) -> None:
        """Nothing goes on."""


class TokenFile:
    """A bearer token in a file that somebody replaces, e.g. the kubelet.

    Raises:
        ConfigError: it can't be read, or holds no token.
    """

    def __init__(self, path: Path, certificate: bytes = b"") -> None:
        self._path, self._certificate = path, certificate
        self._identity = self._read()
        self._read_at: float | None = None

    async def current(self) -> Identity:
        """The token, at most a minute old; an older one, with a warning, if the file can't be read any more."""
        now = asyncio.get_running_loop().time()
        if self._read_at is None:
            self._read_at = now
        elif now - self._read_at >= REREAD_AFTER:
            self._read_at = now
            try:
                self._identity = self._read()
            except ConfigError as error:
                log().warning("Using the old token", err=str(error))
        return self._identity

    async def renew(self) -> Identity:
        """Read the file now."""
        self._identity = self._read()
        self._read_at = asyncio.get_running_loop().time()
        return self._identity

    async def aclose(self) -> None:
        """Nothing goes on."""

    def _read(self) -> Identity:
        try:
            token = self._path.read_text().strip()  # such files may end in a newline
        except OSError as error:
            raise ConfigError(f"token file {self._path} can't be read: {error.strerror}") from error
        except ValueError:
            raise ConfigError(f"token file {self._path} holds something that is no text") from None
        if not token or not token.isprintable():
            raise ConfigError(f"token file {self._path} holds {'no token' if not token else 'more than one line'}")
        return Identity(f"Bearer {token}", self._certificate)
