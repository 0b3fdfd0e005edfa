"""The TLS context of a connection: whom we trust, and the certificate that we show.

Checks what kubectl checks: the chain, the dates and the name. Of what Python is stricter about from 3.13 on, one thing
is kept: an authority must say that its key may sign certificates. Contexts are never changed once they are in use: when
a file behind one has changed, another is made, and connections opened after that use it. When to look is left to
`credentials`. Certificates and keys reach OpenSSL through memory, so no file is written, except for a moment where the
system knows no files in memory.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asyncop.api.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncop.client.config import Connection

_KEY_USAGE = bytes.fromhex("0603551d0f")  # the DER of its object identifier, 2.5.29.15


class _Material(NamedTuple):
    """What a context is made of, in PEM."""

    authority: bytes
    """Empty: the authorities that the system trusts."""
    certificate: bytes
    """Ours, with its key; empty: none."""


class Tls:
    """The context of one connection; None for plain HTTP.

    Raises:
        ConfigError: a certificate or key can't be read.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._shown = b""
        self._material = _Material(b"", b"")
        self.context: ssl.SSLContext | None = None
        if connection.server.startswith("https://"):
            self._renew(self._read())

    def show(self, certificate: bytes) -> None:
        """Show this certificate (with its key, in PEM) from now on; empty: that of the files, if there are any.

        Raises:
            ConfigError: it can't be used; the context stays as it was.
        """
        if certificate == self._shown or self.context is None:
            return
        before, self._shown = self._shown, certificate
        try:
            self._renew(self._read())
        except ConfigError:
            self._shown = before
            raise

    def reread(self) -> bool:
        """Make the context anew if a file behind it has changed; whether one has.

        Raises:
            ConfigError: a file can't be used, e.g. for being half written; the context stays as it was.
        """
        if self.context is None:
            return False
        material = self._read()
        if material == self._material:
            return False
        self._renew(material)
        return True

    def _renew(self, material: _Material) -> None:
        self.context = self._made_of(material)
        self._material = material

    def _read(self) -> _Material:
        configuration, source = self._connection.configuration, self._connection.source
        try:
            authority = _content(configuration.ssl_ca_cert) or self._connection.authority
        except OSError as error:
            raise ConfigError(f"{source}: the certificate authority can't be read: {_reason(error)}") from error
        try:
            certificate = self._shown or _content(configuration.cert_file) + _content(configuration.key_file)
        except OSError as error:
            raise ConfigError(f"{source}: the client certificate or its key can't be read: {_reason(error)}") from error
        return _Material(authority, certificate)

    def _made_of(self, material: _Material) -> ssl.SSLContext:
        configuration = self._connection.configuration
        context = self._trusting(material.authority)
        # Python 3.13 also wants key identifiers, which older cluster CAs lack and Go doesn't ask for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.check_hostname = configuration.assert_hostname is not False
            self._check_key_usage(context, bool(material.authority))
        if material.certificate:
            _show(context, material.certificate, self._connection.source)
        return context

    def _trusting(self, authority: bytes) -> ssl.SSLContext:
        try:
            # Certificates may have comments around them, in any encoding.
            return ssl.create_default_context(cadata=authority.decode("ascii", "ignore") or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{self._connection.source}: the certificate authority can't be read: {_reason(error)}"
            ) from error

    def _check_key_usage(self, context: ssl.SSLContext, is_given: bool) -> None:
        """Refuse an authority of which no certificate says what its key is for, from Python 3.13 on."""
        if sys.version_info < (3, 13) or not is_given:
            return
        certificates = context.get_ca_certs(binary_form=True)
        if certificates and not any(_KEY_USAGE in der for der in certificates):
            where = self._connection.configuration.ssl_ca_cert or "in it"
            raise ConfigError(
                f"{self._connection.source}: the certificate authority {where} has no key usage extension, which "
                "Python 3.13 and newer insist on: make it anew (the key can stay) with "
                "keyUsage=critical,keyCertSign,cRLSign, or run asyncop with Python 3.12"
            )


def check_certificate(certificate: bytes, source: str) -> None:
    """Refuse a client certificate with its key, in PEM, that can't be shown; empty is fine.

    Raises:
        ConfigError: the message begins with `source`.
    """
    if certificate:
        _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, source)


def _show(context: ssl.SSLContext, certificate: bytes, source: str) -> None:
    try:
        with _as_file(certificate) as path:
            # The empty password keeps OpenSSL from asking on the terminal for that of an encrypted key.
            context.load_cert_chain(path, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{source}: the client certificate or its key can't be read: {_reason(error)}") from error


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL finds the content for the moment: it takes client certificates in no other way."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    number = os.memfd_create("asyncop-client-certificate")
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() + b"\n" if path else b""


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or str(error) or type(error).__name__)
