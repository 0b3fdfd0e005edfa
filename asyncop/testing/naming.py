"""What names of objects and keys of labels may look like."""

from __future__ import annotations

import re

_LABEL_TEXT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_TEXT = rf"{_LABEL_TEXT}(\.{_LABEL_TEXT})*"
_LABEL = re.compile(_LABEL_TEXT)
_SUBDOMAIN = re.compile(_SUBDOMAIN_TEXT)
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def subdomain_fault(name: str) -> str:
    """What keeps a text from being a DNS subdomain; empty if nothing does."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if _SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SUBDOMAIN_TEXT}')"
    )


def label_fault(name: str) -> str:
    """What keeps a text from being a DNS label; empty if nothing does."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if "." in name:
        return "must not contain dots"
    if _LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_TEXT}')"
    )


def path_segment_fault(name: str) -> str:
    """What keeps a text from being one segment of a path; empty if nothing does."""
    return "" if name not in (".", "..") and "/" not in name and "%" not in name else "may not contain '/'"
