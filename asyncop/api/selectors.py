"""Label and field selectors: how they are written, sent to the server and matched in process."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

Labels = str | Mapping[str, object]
"""`"app=web,tier in (a, b)"`, or `{"app": "web"}` with PRESENT-like callables left to handlers."""

_TERM = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s=!<>,()]+)
      | (?P<key>[^\s=!<>,()]+)\s*(?:
            (?P<op>==|=|!=)\s*(?P<value>[^\s=!<>,()]*)
          | (?P<order>[<>])\s*(?P<bound>-?\d+)
          | (?P<set>in|notin)\s*\(\s*(?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)

Matcher = Callable[[Mapping[str, str]], bool]


def label_selector(labels: Labels | None) -> str:
    """The query parameter for `labels`; empty selects everything.

    Raises:
        ValueError: a value isn't a string or the text isn't a selector.
    """
    if labels is None:
        return ""
    if isinstance(labels, str):
        _terms(labels)
        return labels.strip()
    for key, value in labels.items():
        if not isinstance(value, str):
            raise ValueError(f"label {key!r}: {value!r} can't be sent to the server; give a string or a selector text")
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def field_selector(fields: str | Mapping[str, str] | None) -> str:
    """The query parameter for `fields`; empty selects everything."""
    if fields is None or isinstance(fields, str):
        return (fields or "").strip()
    return ",".join(f"{key}={value}" for key, value in sorted(fields.items()))


def label_matcher(selector: Labels) -> Matcher:
    """A function that tells whether labels match a selector (a text or a mapping), as the server would.

    Raises:
        ValueError: the text isn't a selector.
    """
    terms = [_matcher(term) for term in _terms(label_selector(selector))]
    return lambda labels: all(term(labels) for term in terms)


def _terms(selector: str) -> list[re.Match[str]]:
    terms, position = [], 0
    text = selector.strip()
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or term.end() == position:
            raise ValueError(f"{selector!r} is not a label selector; write app=web, tier in (a, b), key or !key")
        terms.append(term)
        position = term.end()
    return terms


def _matcher(term: re.Match[str]) -> Matcher:
    if term["absent"]:
        absent = term["absent_key"]
        return lambda labels: absent not in labels
    key, value = term["key"], term["value"]
    if term["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if term["op"]:
        return lambda labels: labels.get(key) == value
    if term["order"]:
        bound = int(term["bound"])
        compare = operator.gt if term["order"] == ">" else operator.lt
        return lambda labels: _is_number(labels.get(key, "")) and compare(int(labels[key]), bound)
    if term["set"]:
        values = {part.strip() for part in term["values"].split(",")}
        if term["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    return lambda labels: key in labels


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
