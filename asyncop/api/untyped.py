"""Objects of resources that a controller reads without declaring a class.

The bytes are kept as they came (without managedFields) and decoded when somebody first reads a field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from asyncop.api.meta import ObjectMeta, decode_hook


class _Header(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


_header = msgspec.json.Decoder(_Header, dec_hook=decode_hook)


class UntypedObject(Mapping[str, Any]):
    """A read-only mapping over one object, e.g. `obj["spec"]["nodeName"]`.

    `metadata` is already decoded and costs nothing. The rest is decoded on the first read and kept for as long as this
    view lives; a store makes a new view at each read, so a view must not be kept across runs to save time.
    """

    __slots__ = ("_fields", "_raw", "_type", "metadata")
    metadata: ObjectMeta

    def __init__(
        self, raw: bytes, metadata: ObjectMeta | None = None, *, api_version: str = "", kind: str = ""
    ) -> None:
        self._raw = raw
        self._type = {"apiVersion": api_version, "kind": kind} if kind else {}  # which the items of lists lack
        self._fields: dict[str, Any] | None = None
        self.metadata = _header.decode(raw).metadata if metadata is None else metadata

    @property
    def raw(self) -> bytes:
        """The object's JSON, without managedFields if it came from a store."""
        return self._raw

    def _decoded(self) -> dict[str, Any]:
        fields = self._fields
        if fields is None:
            fields = self._fields = {**self._type, **msgspec.json.decode(self._raw)}
        return fields

    def __getitem__(self, key: str) -> Any:
        return self._decoded()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        where = f"{self.metadata.namespace}/" if self.metadata.namespace else ""
        return f"<UntypedObject {where}{self.metadata.name}>"
