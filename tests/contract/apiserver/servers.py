"""The two kinds of servers under comparison, and the talks with them."""

from __future__ import annotations

import base64
import json
import ssl
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.contract.apiserver.transcript import Caller, Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from asyncop.testing import ApiServer
    from tests.contract.apiserver.cases import Case
    from tests.testbed.cluster import Cluster


def embedded_endpoint(server: ApiServer) -> Endpoint:
    return Endpoint(
        "127.0.0.1", int(server.url.rpartition(":")[2]), token=server.token, compact=server.faults.expire_versions
    )


def real_endpoint(cluster: Cluster, folder: Path) -> Endpoint:
    """Read from the kubeconfig; `folder` takes the certificate, which the standard library wants from a file."""
    config = json.loads(cluster.kubeconfig.read_text())
    place, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(place["certificate-authority-data"]).decode())
    identity = folder / "identity.pem"
    identity.touch(mode=0o600)
    names = ("client-certificate-data", "client-key-data")
    identity.write_bytes(b"\n".join(base64.b64decode(user[name]) for name in names))
    tls.load_cert_chain(identity)
    address = urlsplit(place["server"])
    return Endpoint(str(address.hostname), int(address.port or 443), tls, compact=cluster.control_plane.compact)


def talk(endpoint: Endpoint, case: Case) -> list[Any]:
    """Put a server to a case in a fresh namespace; returns what it answered."""
    caller = Caller(endpoint, f"t{uuid.uuid4().hex[:10]}")
    try:
        caller.call("POST", "/api/v1/namespaces", {"metadata": {"name": caller.namespace}}, quiet=True)
        case(caller)
        caller.call("DELETE", f"/api/v1/namespaces/{caller.namespace}", quiet=True)
    finally:
        caller.close()
    return caller.transcript()
