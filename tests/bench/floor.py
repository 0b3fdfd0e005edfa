"""The floor: page through all Pods with aiohttp and decode them, with no framework at all.

python floor.py typed     the declared fields of each Pod, nothing else
python floor.py raw       the header of each Pod, and its bytes
"""

import sys

import aiohttp
import msgspec
import uvloop
from apiserver import server, tls
from usage import report


class Meta(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Header(msgspec.Struct, gc=False):
    metadata: Meta


class Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None


class Pod(msgspec.Struct, gc=False):
    metadata: Meta
    spec: Spec


class ListMeta(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class TypedPage(msgspec.Struct):
    metadata: ListMeta
    items: list[Pod]


class RawPage(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw]


def keep_typed(store, items):
    for pod in items:
        store[pod.metadata.namespace, pod.metadata.name] = pod


def keep_raw(store, items):
    header = msgspec.json.Decoder(Header)
    for item in items:
        meta = header.decode(item).metadata
        store[meta.namespace, meta.name] = bytes(item)


async def main(mode):
    page_type, keep = {"typed": (TypedPage, keep_typed), "raw": (RawPage, keep_raw)}[mode]
    decoder, store, token = msgspec.json.Decoder(page_type), {}, ""
    base = server()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls())) as session:
        while True:
            url = f"{base}/api/v1/pods?limit=500" + (f"&continue={token}" if token else "")
            async with session.get(url) as response:
                page = decoder.decode(await response.read())
            keep(store, page.items)
            token = page.metadata.continue_
            if not token:
                break
    report(len(store))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
