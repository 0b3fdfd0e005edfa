"""kubeconfig files: found, read, merged and checked, so that every fault has one clear line.

Files are merged as kubectl merges them: the first to name an entry, or the current context, wins; relative paths count
from the file that holds them. What comes out is one context with its cluster and user, in the form that
kubernetes_asyncio's loader takes; what that loader does with it (OIDC, basic authorization) is its own business. It
doesn't get to see certificates and keys that are embedded, which it would write to files, nor exec plugins.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from asyncop.api.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is there

_FILE_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_HEADER_KEYS = frozenset({"token", "as", "as-uid"})
_CERTIFICATE_DATA = frozenset({"client-certificate-data", "client-key-data"})
_OURS = _CERTIFICATE_DATA | {"certificate-authority-data", "exec"}
_KINDS = ("contexts", "clusters", "users")
_ANONYMOUS = "(nobody)"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One named context, cluster or user, and the file that it came from."""

    value: dict[str, Any]
    path: Path


@dataclass(frozen=True, slots=True)
class Context:
    """One context, complete."""

    name: str
    namespace: str
    """`default` where the context names none."""
    path: Path
    """The file that holds the context."""
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    """Empty if the context names none."""

    @property
    def source(self) -> str:
        """Where it came from, for messages."""
        return f"kubeconfig {self.path}, context {self.name!r}"

    def for_loader(self) -> dict[str, Any]:
        """A kubeconfig with nothing but this context; all paths are absolute."""
        names = {"cluster": self.name, "user": _ANONYMOUS, "namespace": self.namespace}
        user = {key: value for key, value in self.user.items() if key not in _OURS}
        return {
            "current-context": self.name,
            "contexts": [{"name": self.name, "context": names}],
            "clusters": [{"name": self.name, "cluster": {k: v for k, v in self.cluster.items() if k not in _OURS}}],
            "users": [{"name": _ANONYMOUS, "user": user}],
        }

    @property
    def authority(self) -> bytes:
        """The certificate authority that is embedded, in PEM; empty if it is a file or none."""
        return _embedded(self.cluster, "certificate-authority")

    @property
    def certificate(self) -> bytes:
        """Client certificate and key in PEM, if one of them is embedded at least; else they are files or none.

        Raises:
            ConfigError: the other is a file that can't be read.
        """
        if not _CERTIFICATE_DATA & self.user.keys():
            return b""
        try:
            return b"".join(
                _embedded(self.user, key) or Path(self.user[key]).read_bytes() + b"\n"
                for key in ("client-certificate", "client-key")
                if {key, f"{key}-data"} & self.user.keys()
            )
        except OSError as error:
            raise ConfigError(f"{self.source}: {error.filename} can't be read: {error.strerror}") from error


class Kubeconfig:
    """The merged content of some kubeconfig files."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._entries: dict[str, dict[str, _Entry]] = {kind: {} for kind in _KINDS}
        self._current = ""
        for path in paths:
            self._merge(path, _read(path))

    def _merge(self, path: Path, content: dict[str, Any]) -> None:
        current = content.get("current-context")
        self._current = self._current or (current if isinstance(current, str) else "")
        for kind in _KINDS:
            for entry in _named_entries(path, kind, content.get(kind)):
                value = entry.get(kind.removesuffix("s"))
                if not isinstance(value, dict | None):
                    raise ConfigError(f"kubeconfig {path}: {kind} {entry['name']!r} is not a mapping")
                self._entries[kind].setdefault(entry["name"], _Entry(value or {}, path))

    def context(self, name: str | None) -> Context:
        """The context of that name, or the current one.

        Raises:
            ConfigError: it, its cluster, its user or one of their files isn't there.
        """
        name = name or self._current
        if not name:
            raise ConfigError(f"kubeconfig {self._where} has no current-context; give --context, one of: {self._names}")
        entry = self._entries["contexts"].get(name)
        if entry is None:
            raise ConfigError(f"kubeconfig {self._where} has no context {name!r}{self._nearest(name)}")
        cluster = self._part(entry, name, "cluster")
        if cluster is None:
            raise ConfigError(f"kubeconfig {entry.path}: context {name!r} names no cluster")
        user = self._part(entry, name, "user")
        namespace = entry.value.get("namespace") or "default"
        if not isinstance(namespace, str):
            raise ConfigError(f"kubeconfig {entry.path}: context {name!r}: namespace {namespace!r} is not a text")
        return Context(
            name,
            namespace,
            entry.path,
            _checked(cluster, f"cluster {entry.value['cluster']!r}"),
            _checked(user, f"user {entry.value['user']!r}") if user else {},
        )

    def _part(self, context: _Entry, name: str, part: str) -> _Entry | None:
        wanted = context.value.get(part)
        if not wanted:
            return None
        if not isinstance(wanted, str):
            raise ConfigError(f"kubeconfig {context.path}: context {name!r}: {part} is {_kind_of(wanted)}, not a name")
        entry = self._entries[part + "s"].get(wanted)
        if entry is None:
            raise ConfigError(f"kubeconfig {context.path}: context {name!r} names {part} {wanted!r}, which isn't there")
        return entry

    @property
    def _where(self) -> str:
        return ":".join(map(str, self._paths))

    @property
    def _names(self) -> str:
        return ", ".join(sorted(self._entries["contexts"])) or "(none)"

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._entries["contexts"], n=1)
        return f"; did you mean {near[0]!r}? It has: {self._names}" if near else f"; it has: {self._names}"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_bytes(), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"kubeconfig {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {path} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # 2020-13-45 looks like a date
        raise ConfigError(f"kubeconfig {path} is not YAML: {_one_line(error)}") from None
    if content is None:  # kubectl takes an empty file as well
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"kubeconfig {path} is not a kubeconfig: it holds {_kind_of(content)}, not a mapping")
    return content


def _named_entries(path: Path, kind: str, entries: Any) -> list[dict[str, Any]]:
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise ConfigError(f"kubeconfig {path}: {kind} is {_kind_of(entries)}, not a list")
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ConfigError(f"kubeconfig {path}: an entry of {kind} has no name")
    return entries


def _checked(entry: _Entry, what: str) -> dict[str, Any]:
    """The entry with absolute paths, if all that it refers to is there."""
    value = {key: member for key, member in entry.value.items() if member not in (None, "")}
    where = f"kubeconfig {entry.path}: {what}"
    for key in _FILE_KEYS:
        data, name = value.get(f"{key}-data"), value.pop(key, None)
        if data is not None:
            _check_base64(data, f"{where}: {key}-data")
        elif name is not None:
            value[key] = _existing(entry.path.parent, name, f"{where}: {key}")
    if isinstance(value.get("exec"), dict):
        value["exec"] = {**value["exec"], "command": _beside(entry.path.parent, value["exec"].get("command"))}
    if "tokenFile" in value:  # kubectl prefers the file, the loader the token
        value.pop("token", None)
    if what.startswith("cluster"):
        _check_addresses(value, where)
    for key in _HEADER_KEYS & value.keys():
        _check_header(value[key], f"{where}: {key}")
    return value


def _check_addresses(cluster: dict[str, Any], where: str) -> None:
    if "server" not in cluster:
        raise ConfigError(f"{where} has no server")
    _check_url(cluster["server"], f"{where}: server")
    if "proxy-url" in cluster:
        _check_url(cluster["proxy-url"], f"{where}: proxy-url")
    if "tls-server-name" in cluster:
        _check_host(cluster["tls-server-name"], f"{where}: tls-server-name")


def _check_base64(data: Any, what: str) -> None:
    try:
        base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError, TypeError):
        raise ConfigError(f"{what} is not base64") from None


def _existing(base: Path, name: Any, what: str) -> str:
    path = base / str(name)
    if not path.is_file():
        raise ConfigError(f"{what} {path} does not exist")
    return str(path.absolute())


def _beside(base: Path, command: Any) -> Any:
    """A command with a slash in it counts from the kubeconfig; one without is looked up in PATH."""
    return str((base / command).absolute()) if isinstance(command, str) and "/" in command else command


def _embedded(value: Mapping[str, Any], key: str) -> bytes:
    data = value.get(f"{key}-data")
    return base64.b64decode(data) + b"\n" if data is not None else b""


def _check_url(url: Any, what: str) -> None:
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise ConfigError(f"{what} {url!r} does not begin with https:// or http://")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{what} {url!r} is not a URL: {error}") from None
    if not host:
        raise ConfigError(f"{what} {url!r} names no host")
    _check_host(host, what)


def _check_host(host: Any, what: str) -> None:
    try:
        is_name = isinstance(host, str) and host.isprintable() and " " not in host and bool(host.encode("idna"))
    except UnicodeError:  # an empty or endless label
        is_name = False
    if not is_name:
        raise ConfigError(f"{what}: {host!r} is not a host's name")


def _check_header(text: Any, what: str) -> None:
    """What goes into a header must fit into a line of it; the text itself may be a secret."""
    if not isinstance(text, str) or not text.strip().isprintable():
        raise ConfigError(f"{what} is not a text of one line")


def _kind_of(value: Any) -> str:
    names: dict[type, str] = {str: "a text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a number")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
