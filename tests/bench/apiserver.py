"""Where the API server is and how to reach it without any framework: $KUBECONFIG with embedded certificates."""

import base64
import json
import os
import ssl
import tempfile
from pathlib import Path


def server() -> str:
    """The base URL."""
    return str(_config()["clusters"][0]["cluster"]["server"])


def tls() -> ssl.SSLContext:
    """Trusts the cluster's authority and shows the user's certificate."""
    config = _config()
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    user = config["users"][0]["user"]
    with tempfile.NamedTemporaryFile() as pair:
        for part in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[part]))
        pair.flush()
        context.load_cert_chain(pair.name)
    return context


def _config() -> dict:
    return json.loads(Path(os.environ["KUBECONFIG"]).read_text())
