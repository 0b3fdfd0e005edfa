"""Python names and Kubernetes' names of fields.

Kubernetes writes camelCase with initialisms in capitals unless they come first: `pod_ip` is `podIP`, `ip_family` is
`ipFamily`, `host_ips` is `hostIPs` (API conventions, "Naming conventions").
"""

from __future__ import annotations

from functools import cache

_CAPITALS = "IP IPs ID UID UUID CIDR CIDRs PID IPC URI URL URLs WWNs API TLS CPU IO FQDN"
_INITIALISMS = {word.lower(): word for word in _CAPITALS.split()}


@cache
def wire_name(python_name: str) -> str:
    """The name on the wire of a snake_case field; a trailing underscore (`continue_`) is dropped."""
    first, *rest = python_name.rstrip("_").split("_")
    return first + "".join(_INITIALISMS.get(word) or word[:1].upper() + word[1:] for word in rest)
