"""Read what clients notice of the built-in kinds' fields out of Kubernetes' Go types, into the server's data file.

    python -m tests.contract.apiserver.go_types > asyncop/testing/schemas.json

A field's text is `TYPE flag flag=value …`. TYPE is a Go type with the package's short name in front of named types.
Flags: `omitempty` and `omitzero` (zero values aren't written), `map=KEYS`, `set`, `granular` or `atomic` (how appliers
share it), `merge=KEY`, `merge`, `keys` (strategic merge patch) and `default=JSON` (a default the schema itself has).
The pseudo field `*` says how appliers share the whole struct.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.testbed.binaries import KUBERNETES

_PACKAGES = {
    "core": "k8s.io/api@{v}/core/v1",
    "apps": "k8s.io/api@{v}/apps/v1",
    "batch": "k8s.io/api@{v}/batch/v1",
    "policy": "k8s.io/api@{v}/policy/v1",
    "rbac": "k8s.io/api@{v}/rbac/v1",
    "coordination": "k8s.io/api@{v}/coordination/v1",
    "events": "k8s.io/api@{v}/events/v1",
    "autoscaling": "k8s.io/api@{v}/autoscaling/v1",
    "authorization": "k8s.io/api@{v}/authorization/v1",
    "meta": "k8s.io/apimachinery@{v}/pkg/apis/meta/v1",
    "apiextensions": "k8s.io/apiextensions-apiserver@{v}/pkg/apis/apiextensions/v1",
}
_ALIASES = {"v1": "core", "metav1": "meta", "corev1": "core", "autoscalingv1": "autoscaling", "rbacv1": "rbac"}
_ROOTS = [
    "core.Namespace",
    "core.Node",
    "core.Pod",
    "core.Service",
    "core.ConfigMap",
    "core.Secret",
    "core.Event",
    "core.ServiceAccount",
    "core.PersistentVolumeClaim",
    "coordination.Lease",
    "apps.Deployment",
    "apps.StatefulSet",
    "apps.DaemonSet",
    "apps.ReplicaSet",
    "batch.Job",
    "policy.PodDisruptionBudget",
    "policy.Eviction",
    "rbac.Role",
    "rbac.RoleBinding",
    "rbac.ClusterRole",
    "rbac.ClusterRoleBinding",
    "events.Event",
    "autoscaling.Scale",
    "core.Binding",
    "authorization.SelfSubjectAccessReview",
    "apiextensions.CustomResourceDefinition",
    "meta.DeleteOptions",
]
_OPAQUE = {
    "meta.Time": "time",
    "meta.MicroTime": "microtime",
    "meta.FieldsV1": "any",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intOrString",
    "runtime.RawExtension": "any",
    "runtime.Object": "any",
    "types.UID": "string",
    "types.NodeName": "string",
    "meta.Duration": "string",
    "apiextensions.JSON": "any",
    "apiextensions.JSONSchemaProps": "any",
    "apiextensions.CustomResourceValidation": "any",
}
_STRUCT = re.compile(r"^type (\w+) struct ?\{")
_NAMED = re.compile(r"^type (\w+) (=\s*)?((?:\[\]|map\[\w+\])*[\w.]+)\s*$")
_FIELD = re.compile(r"^\s+(?:(\w+)\s+)?([*\[\]\w.]+)\s+`([^`]*)`")
_TAG = re.compile(r'(\w+):"([^"]*)"')

Fields = dict[str, str]


class Package:
    """The types of one Go package: a struct's fields, or the type that a name stands for."""

    def __init__(self, short: str, folder: Path) -> None:
        self.short = short
        self.structs: dict[str, list[tuple[str | None, str, dict[str, str], list[str]]]] = {}
        self.named: dict[str, str] = {}
        self.atomic: set[str] = set()
        for path in sorted(folder.glob("*.go")):
            if path.name.startswith(("types", "micro_time", "time", "generated")) and "pb" not in path.name:
                self._read(path.read_text().splitlines())

    def _read(self, lines: list[str]) -> None:
        comments: list[str] = []
        current: str | None = None
        for line in lines:
            text = line.strip()
            if text.startswith("//"):
                comments.append(text[2:].strip())
                continue
            if found := _STRUCT.match(line):
                current = found[1]
                self.structs[current] = []
                if "+structType=atomic" in comments:
                    self.atomic.add(current)
                if "}" in line:
                    current = None
            elif current and line.startswith("}"):
                current = None
            elif current and (found := _FIELD.match(line)):
                self.structs[current].append((found[1], found[2], dict(_TAG.findall(found[3])), comments))
            elif not current and (found := _NAMED.match(line)):
                self.named[found[1]] = found[3]
            if text or not current:
                comments = [] if not (text == "" and current is None) else comments


def render() -> str:
    """The data file's text, from the sources in Go's module cache."""
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    version = KUBERNETES.replace("v1.", "v0.")
    packages = {short: Package(short, Path(cache) / pattern.format(v=version)) for short, pattern in _PACKAGES.items()}
    reader = _Reader(packages)
    for root in _ROOTS:
        reader.visit(root)
    types = dict(sorted(reader.types.items()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in types.items())
    return "{\n" + lines + "\n}\n"


class _Reader:
    def __init__(self, packages: dict[str, Package]) -> None:
        self._packages = packages
        self.types: dict[str, Fields] = {}

    def visit(self, name: str) -> None:
        if name in self.types:
            return
        short, _, bare = name.partition(".")
        package = self._packages[short]
        self.types[name] = fields = {}
        if bare in package.atomic:
            fields["*"] = "atomic"
        self._add(package, bare, fields)

    def _add(self, package: Package, bare: str, fields: Fields) -> None:
        for go_name, go_type, tags, comments in package.structs[bare]:
            json_name, *options = tags.get("json", "").split(",")
            if json_name == "-" or "json" not in tags:
                continue
            if "inline" in options or not (json_name or go_name):
                embedded = self._qualify(package, go_type.lstrip("*"))
                short, _, inner = embedded.partition(".")
                self._add(self._packages[short], inner, fields)
                continue
            resolved = self._resolve(package, go_type)
            fields[json_name] = " ".join([resolved, *_flags(options, tags, comments)])

    def _qualify(self, package: Package, name: str) -> str:
        alias, dot, bare = name.partition(".")
        if not dot:
            return f"{package.short}.{alias}"
        return f"{_ALIASES.get(alias, alias)}.{bare}"

    def _resolve(self, package: Package, go_type: str) -> str:
        for prefix in ("*", "[]"):
            if go_type.startswith(prefix):
                if go_type == "[]byte":
                    return "bytes"
                return prefix + self._resolve(package, go_type[len(prefix) :])
        if go_type.startswith("map["):
            return "map:" + self._resolve(package, go_type[go_type.index("]") + 1 :])
        if go_type in ("string", "bool", "int32", "int64", "int", "float64", "uint32", "byte"):
            return {"int": "int64", "uint32": "int64", "float64": "number"}.get(go_type, go_type)
        name = self._qualify(package, go_type)
        if name in _OPAQUE:
            return _OPAQUE[name]
        short, _, bare = name.partition(".")
        owner = self._packages[short]
        if bare in owner.named:
            return self._resolve(owner, owner.named[bare])
        self.visit(name)
        return name


def _flags(options: list[str], tags: dict[str, str], comments: list[str]) -> list[str]:
    flags = []
    if "omitempty" in options:
        flags.append("omitempty")
    if "omitzero" in options:
        flags.append("omitzero")
    kinds = [comment.partition("=")[2] for comment in comments if comment.startswith("+listType=")]
    keys = [comment.partition("=")[2] for comment in comments if comment.startswith("+listMapKey=")]
    if kinds:
        flags.append("map=" + ",".join(keys) if kinds[-1] == "map" else kinds[-1])
    if "+mapType=atomic" in comments or "+structType=atomic" in comments:
        flags.append("atomic")
    strategies = tags.get("patchStrategy", "").split(",")
    if "merge" in strategies:
        key = tags.get("patchMergeKey", "")
        flags.append(f"merge={key}" if key else "merge")
    if "retainKeys" in strategies:
        flags.append("keys")
    flags += ["default=" + comment.partition("=")[2] for comment in comments if comment.startswith("+default=")]
    return flags


if __name__ == "__main__":
    sys.stdout.write(render())
