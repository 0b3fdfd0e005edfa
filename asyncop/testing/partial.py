"""Objects without their content: PartialObjectMetadata, for clients that ask for metadata only."""

from __future__ import annotations

import msgspec

ACCEPT = "as=PartialObjectMetadata"


class _Outline(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_decoder = msgspec.json.Decoder(_Outline)
_HEAD = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


def partial(raw: bytes) -> bytes:
    """The object's metadata as a PartialObjectMetadata; only its outline is parsed."""
    return _HEAD + bytes(_decoder.decode(raw).metadata) + b"}"
