"""The shared cache: reflectors fill stores, reconcilers read them through views without awaiting."""

from asyncop.cache.informers import Informer, Informers, Scope
from asyncop.cache.store import Delta, Store, StoreWriter
from asyncop.cache.view import StoreView

__all__ = ["Delta", "Informer", "Informers", "Scope", "Store", "StoreView", "StoreWriter"]
