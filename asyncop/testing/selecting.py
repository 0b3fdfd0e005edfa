"""Which objects of a collection a request means: namespace, label selector, field selector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from asyncop.api.selectors import Matcher, label_matcher
from asyncop.testing.refusals import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncop.testing.kinds import Kind
    from asyncop.testing.schema import Obj
    from asyncop.testing.storage import Stored

_TERM = re.compile(r"([^=!,\s]+)\s*(==|=|!=)\s*([^,]*)")
_OUTSIDE_BRACKETS = re.compile(r",(?![^()]*\))")
_ORDERED = re.compile(r"([^\s=!<>,()]+)\s*([<>])\s*(-?\d+)")
_MANGLED = re.compile(r"[<>]|=[^=]+=")
_SELECTED_BY_KIND = ("Pod", "Node", "Namespace", "Secret", "Event", "Service")
"""Kinds with a list of fields of their own, which those of the metadata must be in too."""

_EVENT_NAMES = {"regarding": "involvedObject", "reportingController": "reportingComponent"}


class Selection:
    """A filter over one collection; without selectors it costs a prefix comparison an object.

    Raises:
        RefusedError: 400, a selector can't be read or names an unknown field.
    """

    def __init__(self, kind: Kind, namespace: str, labels: str = "", fields: str = "") -> None:
        self.prefix = f"{namespace}/" if namespace and kind.namespaced else ""
        self.is_filtered = bool(labels or fields)
        self._labels = _labels(labels)
        terms = [_field(kind, term) for term in fields.split(",") if term.strip()]
        self._keys = [_on_key(kind, path, equal, value) for path, equal, value in terms if path.startswith("metadata.")]
        self._fields = [term for term in terms if not term[0].startswith("metadata.")]

    def matches(self, stored: Stored | None) -> bool:
        """Whether the object is meant; None never is."""
        if stored is None or not stored.key.startswith(self.prefix):
            return False
        if not self.is_filtered:
            return True
        if self._labels is not None and not self._labels(stored.labels):
            return False
        if not all(on_key(stored.key) for on_key in self._keys):
            return False
        return not self._fields or self._match_fields(stored.decode())

    def _match_fields(self, obj: Obj) -> bool:
        return all((_value(obj, path) == value) == equal for path, equal, value in self._fields)


def _labels(text: str) -> Matcher | None:
    """The matcher of asyncop's own selectors, and the two operators that they leave out."""
    if not text.strip():
        return None
    terms = [term.strip() for term in _OUTSIDE_BRACKETS.split(text)]
    ordered = [found for term in terms if (found := _ORDERED.fullmatch(term))]
    rest = [term for term in terms if not _ORDERED.fullmatch(term)]
    try:
        if any(_MANGLED.search(term) for term in rest):
            raise ValueError(text)
        plain = label_matcher(",".join(rest))
    except ValueError:
        raise bad_request(f"unable to parse requirement: {text}") from None
    if not ordered:
        return plain
    return lambda labels: plain(labels) and all(_is_ordered(found, labels) for found in ordered)


def _is_ordered(term: re.Match[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(term[1], "")
    if not value.lstrip("-").isdigit():
        return False
    return int(value) > int(term[3]) if term[2] == ">" else int(value) < int(term[3])


def _field(kind: Kind, term: str) -> tuple[str, bool, str]:
    found = _TERM.fullmatch(term.strip())
    if found is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, operator, value = found.groups()
    has_namespace = kind.namespaced or kind.kind not in _SELECTED_BY_KIND
    if path not in ("metadata.name", *(("metadata.namespace",) if has_namespace else ()), *kind.fields):
        raise _unknown(kind, path)
    head, dot, rest = path.partition(".")
    if kind.kind == "Event":
        path = _EVENT_NAMES.get(head, head) + dot + rest
    return path, operator != "!=", value


def _unknown(kind: Kind, path: str) -> Exception:
    if kind.kind == "Job" and kind.custom is None:
        return bad_request(f'field label "{path}" not supported for Job')
    if kind.custom is not None or kind.kind in _SELECTED_BY_KIND:
        return bad_request(f"field label not supported: {path}")
    return bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _on_key(kind: Kind, path: str, equal: bool, value: str) -> Callable[[str], bool]:
    if path == "metadata.name":
        return lambda key: (key.rpartition("/")[2] == value) == equal
    if not kind.namespaced:
        return lambda key: (value == "") == equal
    return lambda key: (key.partition("/")[0] == value) == equal


def _value(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    if obj is None:
        return "false" if path in ("spec.hostNetwork", "spec.unschedulable") else _ZERO.get(path, "")
    return str(obj)


_ZERO = {"status.replicas": "0", "status.successful": "0"}
