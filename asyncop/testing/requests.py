"""A request taken apart: which resource, which object, which parameters, which body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import yaml
from multidict import CIMultiDictProxy, MultiMapping

from asyncop.testing.lists import ListQuery
from asyncop.testing.objects import Intent
from asyncop.testing.refusals import Fault, Who, bad_request, invalid
from asyncop.testing.watch import WatchQuery

if TYPE_CHECKING:
    from asyncop.testing.schema import Obj

PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A path below `/api/v1` or `/apis/GROUP/VERSION`."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def parse(cls, path: str) -> Address | None:
        """None when the path is no resource's."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
            namespace, rest = rest[1], rest[2:]
        else:
            namespace = ""
        if len(rest) > 3:
            return None
        return cls(group, version, rest[0], namespace, *rest[1:])


Query = MultiMapping[str]


def intent(query: Query, headers: CIMultiDictProxy[str]) -> Intent:
    """How a write is asked for.

    Raises:
        RefusedError: 422, a parameter has a value that it can't have.
    """
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        text = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        fault = Fault("dryRun", "FieldValueNotSupported", text)
        raise invalid(Who("meta.k8s.io", "", "CreateOptions"), [fault])
    manager = query.get("fieldManager") or headers.get("User-Agent", "").partition("/")[0] or "unknown"
    return Intent(manager, dry_run == "All", query.get("fieldValidation") or "Warn")


def list_query(query: Query) -> ListQuery:
    """The parameters of a list."""
    limit = query.get("limit", "")
    if limit and not limit.lstrip("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{limit}": invalid syntax')
    return ListQuery(
        max(int(limit or 0), 0),
        query.get("continue", ""),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
    )


def watch_query(query: Query, *, partial: bool) -> WatchQuery:
    """The parameters of a watch; its timeout defaults to half an hour, as the server's minimum is."""
    initial = query.get("sendInitialEvents")
    seconds = query.get("timeoutSeconds", "")
    return WatchQuery(
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        initial_events=None if initial is None else is_true(initial),
        timeout=float(seconds) if seconds.isdigit() and int(seconds) else 1800.0,
        partial=partial,
    )


def is_true(text: str | None) -> bool:
    """As the server reads booleans: anything but 0 and false."""
    return text is not None and text.lower() not in ("", "0", "false")


def decode(body: bytes) -> Any:
    """A body of JSON, or of YAML.

    Raises:
        RefusedError: 400, it is neither.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        pass  # maybe it is YAML, of which JSON is the quicker part
    try:
        return yaml.load(body, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def decode_object(body: bytes) -> Obj:
    """A body that must be an object."""
    found = decode(body)
    if not isinstance(found, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is no object")
    return found
