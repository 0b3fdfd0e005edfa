"""The client of one API server: configuration, connections, discovery and verbs.

The only package that imports kubernetes_asyncio (cheaply, `door` says how) and, with the manager, aiohttp. What it
gives out is bytes, `asyncop.api` values and errors of `asyncop.api.errors`; caching is left to `asyncop.cache`.
"""

from __future__ import annotations

from asyncop.client.config import Connection, load_connection
from asyncop.client.transport import Transport

__all__ = ["Connection", "Transport", "load_connection"]
