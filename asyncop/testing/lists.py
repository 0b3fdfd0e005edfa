"""Lists: whole or in pages, now or as of a version, with continue tokens that end when their past is compacted."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from asyncop.testing.refusals import Fault, RefusedError, Who, bad_request, expired, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncop.testing.selecting import Selection
    from asyncop.testing.storage import Collection, Stored

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_OPTIONS = Who("meta.k8s.io", "", "ListOptions")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The parameters of a list as they were sent; numbers are checked already."""

    limit: int = 0
    continue_: str = ""
    version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a list answers."""

    items: list[Stored]
    version: int
    continue_: str = ""
    remaining: int = 0


def page(collection: Collection, now: int, selection: Selection, query: ListQuery) -> Page:
    """The objects that are asked for.

    Raises:
        RefusedError: 410 for a past that is compacted, 504 for a version that doesn't exist yet, 400 and 422 for
            parameters that can't be.
    """
    version, start = _position(collection, now, selection, query)
    keys, objects = (collection.keys, collection.objects) if version == now else collection.at(version)
    index = bisect_left(keys, start or selection.prefix)
    end = bisect_left(keys, selection.prefix[:-1] + "0") if selection.prefix else len(keys)  # "0" follows "/"
    items: list[Stored] = []
    while index < end and not (query.limit and len(items) == query.limit):
        stored = objects[keys[index]]
        if selection.matches(stored):
            items.append(stored)
        index += 1
    if index >= end or not query.limit:
        return Page(items, version)
    token = _encode(version, items[-1].key[len(selection.prefix) :] + "\0")
    return Page(items, version, token, 0 if selection.is_filtered else end - index)


def _position(collection: Collection, now: int, selection: Selection, query: ListQuery) -> tuple[int, str]:
    """The version to list at, and the key to start from."""
    _check(query)
    if query.continue_:
        version, start = _decode(query.continue_)
        start = selection.prefix + start
        if version < 0:
            return now, start
        if version < collection.compacted:
            raise _continue_expired(start[len(selection.prefix) :])
        return version, start
    wanted = int(query.version or 0)
    if wanted > now:
        raise too_large(wanted, now)
    exact = query.match == "Exact" or (query.limit and wanted and not query.match)
    if exact and wanted < collection.compacted:
        raise expired("The resourceVersion for the provided list is too old.")
    return (wanted if exact else now), ""


def _check(query: ListQuery) -> None:
    if query.version and not query.version.isdigit():
        fault = f'Invalid value: "{query.version}": strconv.ParseUint: parsing "{query.version}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {fault}")
    if query.continue_ and query.version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    if not query.match:
        return
    if not query.version:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid(_OPTIONS, [Fault("resourceVersionMatch", "FieldValueForbidden", text)])
    if query.continue_:
        text = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        raise invalid(_OPTIONS, [Fault("resourceVersionMatch", "FieldValueForbidden", text)])
    if query.match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{query.match}": supported values: "Exact", "NotOlderThan", ""'
        raise invalid(_OPTIONS, [Fault("resourceVersionMatch", "FieldValueNotSupported", text)])
    if query.match == "Exact" and query.version == "0":
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise invalid(_OPTIONS, [Fault("resourceVersionMatch", "FieldValueForbidden", text)])


def too_large(wanted: int, now: int) -> RefusedError:
    """A version from the future, which the client may wait for."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return RefusedError(504, "Timeout", f"Timeout: Too large resource version: {wanted}, current: {now}", details)


class _ContinueExpiredError(RefusedError):
    """410 with a token that goes on without consistency."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", _CONTINUE_EXPIRED)
        self._token = token

    def status(self) -> dict[str, object]:
        return {**super().status(), "metadata": {"continue": self._token}}


def _continue_expired(start: str) -> RefusedError:
    return _ContinueExpiredError(_encode(-1, start))


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def _encode(version: int, start: str) -> str:
    token = _Token("meta.k8s.io/v1", version, start)
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _decode(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise bad_request("continue key is not valid: illegal base64 data at input byte 0") from None
    return decoded.rv, decoded.start


def encode(page_: Page, head: tuple[str, str], show: Callable[[Stored], bytes], *, custom: bool = False) -> bytes:
    """The body; `head` is kind and apiVersion of the list, `show` gives an item's bytes."""
    metadata: dict[str, object] = {"resourceVersion": str(page_.version)}
    if custom:
        metadata["continue"] = ""
    if page_.continue_:
        metadata["continue"] = page_.continue_
        if page_.remaining:
            metadata["remainingItemCount"] = page_.remaining
    start = msgspec.json.encode({"kind": head[0], "apiVersion": head[1], "metadata": metadata})
    return start[:-1] + b',"items":[' + b",".join(map(show, page_.items)) + b"]}\n"
