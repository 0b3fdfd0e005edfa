"""Which proxy the environment names for a server."""

from __future__ import annotations

import pytest

from asyncop.api.errors import ConfigError
from asyncop.client.proxy import checked, proxy_for

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        ("https://172.20.0.1", "172.20.0.0/16,.svc"),
        ("https://172.20.0.1:6443", "10.0.0.1, 172.20.0.1"),
        ("https://172.20.0.1", "172.20.0.1:443"),
        ("https://kubernetes.default.svc", "172.20.0.0/16,.svc"),
        ("https://kubernetes.default.SVC.", ".svc"),
        ("https://api.corp.example", "corp.example"),
        ("https://corp.example:8443", "corp.example:8443"),
        ("https://api.corp.example", "*.corp.example"),
        ("https://[fd00:beef::1]:6443", "fd00:beef::/32"),
        ("https://[fd00:beef::1]:6443", "fd00:beef:0::1"),
        ("https://[fd00:beef::1]:6443", "[fd00:beef::1]:6443"),
        ("https://anything", "*"),
        ("https://127.0.0.1:6443", ""),
        ("https://[::1]:6443", ""),
        ("https://localhost", ""),
    ],
)
def test_exceptions_are_reached_directly(server: str, exceptions: str) -> None:
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}) is None
    assert proxy_for(server, {"https_proxy": PROXY, "no_proxy": exceptions}) is None


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        ("https://172.21.0.1", "172.20.0.0/16,.svc"),
        ("https://172.20.0.1:6443", "172.20.0.1:443"),
        ("https://svc", ".svc"),
        ("https://notcorp.example", "corp.example"),
        ("https://api.example", "172.20.0.0/16,rubbish/99,,:"),
        ("https://[fd00:beef::1]", "fd00:feed::/32"),
        ("https://api.example", ""),
    ],
)
def test_all_others_through_the_proxy(server: str, exceptions: str) -> None:
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}) == PROXY


def test_the_scheme_of_the_server_decides_which_variable_counts() -> None:
    environment = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "secure:2"}
    assert proxy_for("http://c.example", environment) == "http://plain:1"
    assert proxy_for("https://c.example", environment) == "http://secure:2"
    assert proxy_for("https://c.example", {"HTTP_PROXY": PROXY}) is None


@pytest.mark.parametrize("proxy", ["socks5://jane:secret@p:1", "http://", "http://p:99999", "ftp://p"])
def test_a_proxy_that_cannot_be_used_is_a_config_error_without_its_password(proxy: str) -> None:
    with pytest.raises(ConfigError, match=r"^HTTPS_PROXY .* is not http://HOST:PORT or https://HOST:PORT$") as caught:
        proxy_for("https://c.example", {"HTTPS_PROXY": proxy})
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"^kubeconfig k: proxy-url"):
        checked(proxy, "kubeconfig k: proxy-url")
