"""The cluster's certificate authority and one identity for each of its parts.

Each component signs in as itself (system:nodes, system:kube-scheduler …), as in a real cluster, so that RBAC and an
audit log tell the truth about who did what. Keys are on P-256, which is made in milliseconds. Certificates carry key
usage and key identifiers, which Python from 3.13 on insists on.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.processes import run_tool

_DAYS = "30"
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*args: str | Path) -> None:
    run_tool(["openssl", *args])


@dataclass(frozen=True)
class Pki:
    """A directory of keys and certificates; made once, read by everybody after that."""

    path: Path

    @property
    def ca(self) -> Path:
        return self.path / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.path / "ca.key"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service-account tokens."""
        return self.path / "sa.key"

    @property
    def service_account_public_key(self) -> Path:
        return self.path / "sa.pub"

    def certificate(self, name: str) -> Path:
        return self.path / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.path / f"{name}.key"

    def create(self) -> None:
        """Make the authority and the key of the service accounts."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = ("-subj", "/CN=asyncop-testbed", "-days", _DAYS, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl("req", "-x509", *_EC, "-keyout", self.ca_key, "-out", self.ca, *authority)
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.service_account_key)
        _openssl("ec", "-in", self.service_account_key, "-pubout", "-out", self.service_account_public_key)

    def issue(self, name: str, user: str, group: str | None = None, alternative_names: Iterable[str] = ()) -> None:
        """Make NAME.key and NAME.crt; with alternative names (`IP:…`, `DNS:…`) it can serve, too."""
        request, extensions = self.path / f"{name}.csr", self.path / f"{name}.ext"
        lines = ["authorityKeyIdentifier=keyid", "keyUsage=critical,digitalSignature"]
        lines += ["extendedKeyUsage=clientAuth,serverAuth"]
        names = ",".join(alternative_names)
        if names:
            lines.append(f"subjectAltName={names}")
        extensions.write_text("\n".join(lines))
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        _openssl("req", *_EC, "-keyout", self.key(name), "-out", request, "-subj", subject)
        sign = ("-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", _DAYS, "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *sign, "-out", self.certificate(name))

    def write_kubeconfig(self, target: Path, name: str, server: str) -> None:
        """Write a kubeconfig that holds everything inside, so that it can be copied into an image or a Secret."""

        def embedded(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        user = {
            "client-certificate-data": embedded(self.certificate(name)),
            "client-key-data": embedded(self.key(name)),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [
                {"name": "testbed", "cluster": {"server": server, "certificate-authority-data": embedded(self.ca)}}
            ],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
        }
        target.touch(mode=0o600)
        target.write_text(json.dumps(config, indent=1))
