"""What the server says it serves: group and version lists, resources, the aggregated form, `/version`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncop.testing.kinds import READ_WRITE, Kind
from asyncop.testing.refusals import RefusedError

if TYPE_CHECKING:
    from asyncop.testing.catalog import Catalog
    from asyncop.testing.schema import Obj

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "$Format:%H$",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "asyncop/testing",
}
"""The release whose behaviour the contract tests compare with; the platform tells that it isn't one."""


def core_versions(address: str) -> Obj:
    """`/api`."""
    served = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": served}


def groups(catalog: Catalog) -> Obj:
    """`/apis`."""
    names = dict.fromkeys(group for group, _ in catalog.versions() if group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(catalog, name) for name in names]}


def group(catalog: Catalog, name: str) -> Obj:
    """One group's versions, as in `/apis` and at `/apis/GROUP`."""
    found = _versions(catalog, name)
    if not found:
        raise RefusedError(404, "NotFound", "the server could not find the requested resource", {})
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in found]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _versions(catalog: Catalog, name: str) -> list[str]:
    return sorted((version for group, version in catalog.versions() if group == name), key=_priority)


def _priority(version: str) -> tuple[int, int, int, str]:
    """v2, v1, v1beta2, v1beta1, v1alpha1, then the rest by name."""
    digits, _, rest = version.removeprefix("v").partition("beta")
    stage = 1 if rest else 0
    if not rest:
        digits, _, rest = version.removeprefix("v").partition("alpha")
        stage = 2 if rest else 0
    if not digits.isdigit():
        return (3, 0, 0, version)
    return (stage, -int(digits), -int(rest or 0), version)


def resources(catalog: Catalog, group_name: str, version: str) -> Obj:
    """`/api/v1` and `/apis/GROUP/VERSION`."""
    entries: list[Obj] = []
    for kind in catalog.of(group_name, version):
        entry: Obj = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced}
        entry |= {"kind": kind.kind, "verbs": list(kind.verbs)}
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        entries.append(entry)
        for sub in subresources(kind):
            below = {"name": f"{kind.plural}/{sub['name']}", "singularName": "", "namespaced": kind.namespaced}
            below |= {"kind": sub["kind"], "verbs": sub["verbs"]}
            if sub["group"]:
                below |= {"group": sub["group"], "version": "v1"}
            entries.append(below)
    api_version = f"{group_name}/{version}" if group_name else version
    head: Obj = {"kind": "APIResourceList", "groupVersion": api_version, "resources": entries}
    return {**head, "apiVersion": "v1"} if group_name else head


def subresources(kind: Kind) -> list[dict[str, Any]]:
    """What is below a resource's objects, by name."""
    found = []
    if kind.kind == "Pod" and kind.custom is None:
        found.append({"name": "binding", "kind": "Binding", "verbs": ["create"], "group": ""})
        found.append({"name": "eviction", "kind": "Eviction", "verbs": ["create"], "group": "policy"})
    if kind.kind == "Namespace" and kind.custom is None:
        found.append({"name": "finalize", "kind": "Namespace", "verbs": ["update"], "group": ""})
    if kind.has_scale:
        found.append({"name": "scale", "kind": "Scale", "verbs": list(READ_WRITE), "group": "autoscaling"})
    if kind.has_status:
        found.append({"name": "status", "kind": kind.kind, "verbs": list(READ_WRITE), "group": ""})
    return found


def aggregated(catalog: Catalog, *, core: bool) -> Obj:
    """`/api` and `/apis` for clients that ask for everything at once."""
    names = dict.fromkeys(name for name, _ in catalog.versions() if (name == "") == core)
    items = []
    for name in names:
        versions = [
            {
                "version": version,
                "resources": [_aggregated(kind) for kind in catalog.of(name, version)],
                "freshness": "Current",
            }
            for version in _versions(catalog, name)
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(kind: Kind) -> Obj:
    entry: Obj = {"resource": kind.plural, "responseKind": _response_kind(kind.kind, "", kind)}
    entry |= {"scope": "Namespaced" if kind.namespaced else "Cluster", "singularResource": kind.singular}
    entry["verbs"] = list(kind.verbs)
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = [
        {
            "subresource": sub["name"],
            "responseKind": _response_kind(sub["kind"], sub["group"], kind),
            "verbs": sub["verbs"],
        }
        for sub in subresources(kind)
    ]
    if below:
        entry["subresources"] = below
    return entry


def _response_kind(name: str, group_name: str, kind: Kind) -> Obj:
    """A built-in resource leaves its own group out; a custom one names it."""
    if group_name:
        return {"group": group_name, "version": "v1", "kind": name}
    own = (kind.group, kind.version) if kind.custom is not None else ("", "")
    return {"group": own[0], "version": own[1], "kind": name}
