"""The TLS context of a connection: whom we trust, and the certificate that we show.

Checks what kubectl checks: the chain, the dates and the name. Renewed client certificates are not picked up while the
process lives.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from asyncop.api.errors import ConfigError

if TYPE_CHECKING:
    from asyncop.client.config import Connection


def tls_context(connection: Connection) -> ssl.SSLContext | None:
    """The context for `connection`; None for plain HTTP.

    Raises:
        ConfigError: a certificate or key can't be read.
    """
    if not connection.server.startswith("https://"):
        return None
    configuration = connection.configuration
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{connection.source}: the certificate authority can't be read: {_reason(error)}") from error
    # Python 3.13 also wants key identifiers, which older cluster CAs lack and Go doesn't ask for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif configuration.assert_hostname is False:
        context.check_hostname = False
    if configuration.cert_file:
        _show_certificate(context, connection)
    return context


def _show_certificate(context: ssl.SSLContext, connection: Connection) -> None:
    configuration = connection.configuration
    try:
        # The empty password keeps OpenSSL from asking on the terminal for that of an encrypted key.
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{connection.source}: the client certificate or its key can't be read: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or str(error) or type(error).__name__)
