"""Which proxy leads to the API server: that of the kubeconfig, else that of the environment, as Go's programs see it.

`HTTPS_PROXY` or `HTTP_PROXY` by the scheme of the server's URL, in capitals or not; `NO_PROXY` lists exceptions with
commas between them: `*`, names (`svc.local` means its subdomains too, `.svc` only them), addresses, ranges such as
`172.20.0.0/16`; names and addresses may have a port. The loopback never needs a proxy. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from asyncop.api.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy that the environment wants for a server; None: go there directly.

    Raises:
        ConfigError: it names a proxy of another kind than HTTP.
    """
    parts = urlsplit(server)
    variable, proxy = _first(environment, f"{parts.scheme}_proxy")
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    if not proxy or _is_loopback(host) or _is_excepted(host, port, _first(environment, "no_proxy")[1]):
        return None
    return checked(proxy if "://" in proxy else f"http://{proxy}", variable)


def checked(proxy: str, source: str) -> str:
    """The proxy's URL, if it is one that can be used.

    Raises:
        ConfigError: it can't; the message names `source`.
    """
    try:
        parts = urlsplit(proxy)
        is_usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError(f"{source} {_without_password(proxy)!r} is not http://HOST:PORT or https://HOST:PORT")
    return proxy


def _without_password(url: str) -> str:
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]


def _first(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable in capitals, else in small letters, with its value."""
    upper = name.upper()
    return next(((each, environment[each].strip()) for each in (upper, name) if environment.get(each)), (upper, ""))


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else host == "localhost"


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    return any(_fits(host.lower(), port, each.strip().lower()) for each in exceptions.split(",") if each.strip())


def _fits(host: str, port: int, exception: str) -> bool:
    if exception == "*":
        return True
    address = _address(host)
    if "/" in exception:
        return address is not None and _is_within(address, exception)
    name, wanted = _split_port(exception)
    if wanted not in (None, port):
        return False
    if address is not None:
        return address == _address(name)
    name = name.removeprefix("*")  # "*.svc" is how people write ".svc"
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _is_within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, block: str) -> bool:
    try:
        return address in ipaddress.ip_network(block, strict=False)
    except ValueError:
        return False


def _split_port(exception: str) -> tuple[str, int | None]:
    """A name or address and its port; IPv6 has colons of its own unless it is in brackets."""
    head, colon, tail = exception.rpartition(":")
    if not colon or not tail.isdigit() or (":" in head and not head.endswith("]")):
        return exception.strip("[]"), None
    return head.strip("[]"), int(tail)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
