"""The smallest client that can look at a cluster: JSON over HTTPS with the standard library.

For the test bed's own waiting and for fixtures, where a kubectl process per look would cost more than the look. It is
deliberately not asyncop's client: what tests the product must not depend on it.
"""

import http
import http.client
import json
import ssl
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.testbed.errors import TestbedError
from tests.testbed.pki import Pki

Json = dict[str, Any]


class ApiError(TestbedError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Api:
    """One caller, identified by a certificate. Every call opens a connection of its own, so threads may share it."""

    def __init__(self, server: str, ca: Path, certificate: Path, key: Path) -> None:
        address = urlsplit(server)
        self._host, self._port = address.hostname or "", address.port
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(certificate, key)

    @classmethod
    def from_pki(cls, server: str, pki: Pki, name: str = "admin") -> Self:
        return cls(server, pki.ca, pki.certificate(name), pki.key(name))

    def call(self, method: str, path: str, body: Json | None = None, *, timeout: float = 10) -> Json:
        """Send JSON (a PATCH as a merge patch) and return the decoded answer.

        Raises:
            ApiError: an answer of 400 and above.
            OSError: no answer.
        """
        return json.loads(self.text(method, path, body, timeout=timeout))  # type: ignore[no-any-return]

    def text(self, method: str, path: str, body: Json | None = None, *, timeout: float = 10) -> str:
        """Like call(), for paths that do not answer in JSON, such as /readyz."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
            answer = connection.getresponse()
            content = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer broke off: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(answer.status, content)
        return content
