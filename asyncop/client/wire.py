"""Bytes of the API server turned into records and events, in one pass where possible.

A `Codec` knows what the readers of one resource want: some `Object` classes, the raw bytes, or both. With one class
and no raw reader a whole page, and a whole watch line, is decoded at once into the declared fields (about a third of
the cost of doing it piecewise). Only when that fails is the page or line taken apart, so that one bad object costs one
object: it becomes an *unreadable* record, which still has its key and metadata.

Records never keep a slice of a page alive: raw bytes are cut (managedFields are about 40 % of an object) and copied.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from asyncop.api.errors import ApiError, DecodeError, api_error
from asyncop.api.meta import ObjectMeta, decode_hook
from asyncop.api.object import Object
from asyncop.client.depth import TOO_DEEP, shallow

if TYPE_CHECKING:
    from collections.abc import Callable

ObjectT = TypeVar("ObjectT", bound=Object)

_set: Callable[[Any, str, Any], None] = structs.force_setattr  # of objects that nobody else has seen yet
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MISFITS = (msgspec.DecodeError, ValueError, TypeError, RecursionError)  # what decoding into a class may raise
_SHARED_TEXT = 1024  # characters of the largest set remembered; those of annotations may be 256 KiB, and outlive theirs
_SHARED_LIMIT = 4096  # distinct label and annotation sets remembered; more than that is churn, not sharing


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What a store keeps of one object."""

    metadata: ObjectMeta
    views: tuple[Object | DecodeError, ...]
    """One projection for each class of the codec, in its order; a DecodeError where the object doesn't fit."""
    raw: bytes | None
    """The object's JSON without managedFields, if an untyped reader exists."""


class Page(NamedTuple):
    """One page of a list."""

    records: list[Record]
    resource_version: str
    continue_token: str
    """Empty on the last page."""


class WatchEvent(NamedTuple):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; an ERROR line is raised as the ApiError that it carries."""
    record: Record


class LineSplitter:
    """Cuts a stream of chunks into lines, whatever their length.

    aiohttp's own `readline` fails on lines beyond twice its buffer; one Secret can be larger than that.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes; the rest is kept for the next chunk."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts = []
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line]


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = ""
    continue_: str = ""


class _RawPage(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_NOTHING = msgspec.Raw(b"")


class _HeaderMeta(ObjectMeta):
    managed_fields: msgspec.Raw = _NOTHING


class _Header(msgspec.Struct):
    metadata: _HeaderMeta = _HeaderMeta()


class _LooseHeader(msgspec.Struct):
    metadata: dict[str, Any]


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _Cause(msgspec.Struct):
    reason: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct):
    code: int = 500
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_raw_page = msgspec.json.Decoder(_RawPage)
_raw_event = msgspec.json.Decoder(_RawEvent)
_header = msgspec.json.Decoder(_Header, dec_hook=decode_hook)
_loose_header = msgspec.json.Decoder(_LooseHeader)
_bookmark = msgspec.json.Decoder(_Bookmark)
_status = msgspec.json.Decoder(_Status)


@cache
def _object_decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls, dec_hook=decode_hook)


def decode_object(cls: type[ObjectT], data: bytes | msgspec.Raw) -> ObjectT:
    """One object of a class; a `null` counts as absent.

    Raises:
        DecodeError: a value doesn't fit its type; the message names the field.
    """
    try:
        obj: ObjectT = _object_decoder(cls).decode(data)  # type: ignore[arg-type]  # a class hashes
        return obj
    except _MISFITS:
        pass
    try:
        return msgspec.convert(_without_null(msgspec.json.decode(data)), cls, dec_hook=decode_hook)
    except _MISFITS as error:
        raise DecodeError(f"{cls.__name__}: {error}") from error


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_null(member) for member in value]
    return value


def decode_status(data: bytes | msgspec.Raw, status: int | None = None, retry_after: float | None = None) -> ApiError:
    """The error that a Status body (or any other text behind a failure's HTTP status) stands for."""
    try:
        answer = _status.decode(data)
    except msgspec.DecodeError:
        text = bytes(data)[:200].decode("utf-8", "replace").strip()
        return api_error(status or 500, "", text, retry_after)
    details = answer.details or _StatusDetails()
    if retry_after is None and details.retry_after_seconds is not None:
        retry_after = float(details.retry_after_seconds)
    causes = tuple(cause.reason for cause in details.causes if cause.reason)
    return api_error(status or answer.code, answer.reason, answer.message, retry_after, causes)


def _read_header(item: msgspec.Raw) -> _HeaderMeta:
    """The metadata of an object; a `null` in it counts as absent."""
    try:
        return _header.decode(item).metadata
    except msgspec.DecodeError:
        pass
    try:
        metadata = _loose_header.decode(item).metadata
        metadata.pop("managedFields", None)
        return msgspec.convert(_without_null(metadata), _HeaderMeta, dec_hook=decode_hook)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise DecodeError(f"the server sent an object without readable metadata: {error}") from error


class Codec:
    """Decodes pages and watch lines of one resource into Records for a fixed set of readers."""

    def __init__(self, classes: tuple[type[Object], ...], *, keep_raw: bool) -> None:
        self._classes, self._keep_raw = classes, keep_raw
        self._one_pass = len(classes) == 1 and not keep_raw
        self._shared: dict[tuple[Any, ...], dict[str, str]] = {}
        if self._one_pass:
            cls = classes[0]
            self._page = msgspec.json.Decoder(
                msgspec.defstruct("TypedPage", [("metadata", _ListMeta), ("items", list[cls] | None, None)]),  # type: ignore[valid-type]
                dec_hook=decode_hook,
            )
            self._event = msgspec.json.Decoder(
                msgspec.defstruct("TypedEvent", [("type", str), ("object", cls)]), dec_hook=decode_hook
            )

    def decode_page(self, data: bytes) -> Page:
        """A page's records, in the server's order.

        Raises:
            DecodeError: it isn't a list at all.
        """
        if self._one_pass:
            try:
                page: Any = self._page.decode(data)
            except _MISFITS:
                pass
            else:
                return self._result(page, self._typed)
        try:
            try:
                return self._result(_raw_page.decode(data), self._piecewise)
            except RecursionError:
                return self._result(_raw_page.decode(shallow(data)), self._cut_short)
        except msgspec.DecodeError as error:
            raise DecodeError(f"the server's list can't be read: {error}") from error

    @staticmethod
    def _result(page: Any, record: Callable[[Any], Record]) -> Page:
        meta = page.metadata
        return Page([record(item) for item in page.items or ()], meta.resource_version, meta.continue_)

    def decode_line(self, line: bytes) -> WatchEvent:
        """One watch line.

        Raises:
            ApiError: it is an ERROR line; the error says what the server reports.
            DecodeError: it isn't a watch event at all.
        """
        if self._one_pass:
            try:
                event: Any = self._event.decode(line)
            except _MISFITS:
                pass
            else:
                if event.type != "ERROR":
                    return WatchEvent(event.type, self._typed(event.object))
        try:
            return self._decode_line_piecewise(line, self._piecewise)
        except RecursionError:
            return self._decode_line_piecewise(shallow(line), self._cut_short)

    @staticmethod
    def _decode_line_piecewise(line: bytes, record: Callable[[Any], Record]) -> WatchEvent:
        try:
            event = _raw_event.decode(line)
            if event.type == "ERROR":
                raise decode_status(event.object)
            if event.type == "BOOKMARK":  # nearly empty: only its resourceVersion means something
                version = _bookmark.decode(event.object).metadata.resource_version
                return WatchEvent(event.type, Record(ObjectMeta(resource_version=version), (), None))
        except msgspec.DecodeError as error:
            raise DecodeError(f"the server's watch line can't be read: {error}") from error
        return WatchEvent(event.type, record(event.object))

    def decode_item(self, data: bytes) -> Record:
        """One object by itself, e.g. the answer of a write.

        Raises:
            DecodeError: it has no readable metadata.
        """
        try:
            return self._piecewise(msgspec.Raw(data))
        except RecursionError:
            return self._cut_short(msgspec.Raw(shallow(data)))

    def _typed(self, obj: Object) -> Record:
        self._share(obj.metadata)
        return Record(obj.metadata, (obj,), None)

    def _piecewise(self, item: msgspec.Raw) -> Record:
        header = _read_header(item)
        raw = _without_managed_fields(item, header.managed_fields) if self._keep_raw else None
        _set(header, "managed_fields", _NOTHING)  # it would pin the whole page
        self._share(header)
        return Record(header, tuple(self._view(cls, item, header) for cls in self._classes), raw)

    def _cut_short(self, item: msgspec.Raw) -> Record:
        """The record of something out of bytes that were made shallow; unreadable if it is what was too deep."""
        record = self._piecewise(item)
        if TOO_DEEP not in bytes(item):
            return record
        error = DecodeError("it is nested too deep to be read")
        return Record(record.metadata, tuple(error for _ in self._classes), None)

    def _view(self, cls: type[Object], item: msgspec.Raw, metadata: ObjectMeta) -> Object | DecodeError:
        try:
            view = decode_object(cls, item)
        except DecodeError as error:
            return error
        _set(view, "metadata", metadata)  # one for all views of the object
        return view

    def _share(self, metadata: ObjectMeta) -> None:
        """Make equal label and annotation sets one dict: they are most of an ObjectMeta's memory."""
        if metadata.labels:
            _set(metadata, "labels", self._shared_dict(metadata.labels))
        annotations = metadata.annotations
        if annotations:
            annotations.pop(_LAST_APPLIED, None)
            _set(metadata, "annotations", self._shared_dict(annotations))

    def _shared_dict(self, mapping: dict[str, str]) -> dict[str, str]:
        items = tuple(mapping.items())
        known = self._shared.get(items)
        if known is not None:
            return known
        if sum(len(key) + len(value) for key, value in items) <= _SHARED_TEXT:
            if len(self._shared) > _SHARED_LIMIT:
                self._shared.clear()
            self._shared[items] = mapping
        return mapping


def _without_managed_fields(item: msgspec.Raw, managed: msgspec.Raw) -> bytes:
    data = bytes(item)
    if managed is _NOTHING:
        return data
    return data.replace(b',"managedFields":' + bytes(managed), b"", 1)
