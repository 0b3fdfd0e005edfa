"""`Object`: a typed projection of one resource.

The class keywords say which resource it is; only `metadata` and the declared fields are decoded, kept and compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from asyncop.api.meta import ObjectMeta
from asyncop.api.struct import Struct


class ResourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The class keywords of an `Object`: which resource it projects, and what only a CRD needs."""

    api_version: str
    kind: str
    plural: str | None = None
    """None: found by discovery, as `namespaced`, `singular` and `short_names` are."""
    namespaced: bool | None = None
    singular: str | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: type | None = None
    scale: Any = None
    columns: tuple[Any, ...] = ()
    rules: tuple[Any, ...] = ()

    @property
    def group_version(self) -> tuple[str, str]:
        """Group (empty for core) and version."""
        group, _, version = self.api_version.rpartition("/")
        return group, version


if TYPE_CHECKING:

    class Object(Struct):
        """A typed projection of one resource: `class Pod(asyncop.Object, api_version="v1", kind="Pod")`."""

        metadata: ObjectMeta = ...  # type: ignore[assignment]  # the real default is an empty ObjectMeta
        __resource__: ClassVar[ResourceOptions]

        def __init_subclass__(  # noqa: PLR0913 - the public contract names each of them
            cls,
            *,
            api_version: str = "",
            kind: str = "",
            plural: str | None = None,
            namespaced: bool | None = None,
            singular: str | None = None,
            short_names: tuple[str, ...] = (),
            categories: tuple[str, ...] = (),
            status: type | None = None,
            scale: Any = None,
            columns: tuple[Any, ...] = (),
            rules: tuple[Any, ...] = (),
        ) -> None: ...

else:

    class _ObjectType(type(Struct)):
        """Takes the resource's class keywords off before msgspec sees the rest."""

        def __new__(mcls, name, bases, namespace, **keywords):
            options = {key: keywords.pop(key) for key in ResourceOptions.__struct_fields__ if key in keywords}
            cls = super().__new__(mcls, name, bases, namespace, **keywords)
            if options:
                missing = {"api_version", "kind"} - options.keys()
                if missing:
                    raise TypeError(f"class {name}: an asyncop.Object needs the class keywords api_version and kind")
                cls.__resource__ = ResourceOptions(**options)
            elif bases != (Struct,) and not hasattr(cls, "__resource__"):
                raise TypeError(
                    f'class {name}: say which resource it projects: class {name}(asyncop.Object, api_version="v1", '
                    'kind="Pod")'
                )
            return cls

    class Object(Struct, metaclass=_ObjectType):
        """A typed projection of one resource: `class Pod(asyncop.Object, api_version="v1", kind="Pod")`.

        Only `metadata` and the declared fields are decoded, kept and compared. An object whose values don't fit is
        unreadable (`DecodeError`), never its kind. A projection isn't the whole object: it is patched, never put back.
        """

        __resource__: ClassVar[ResourceOptions]
        metadata: ObjectMeta = ObjectMeta()


def is_metadata_only(cls: type[Object]) -> bool:
    """Whether the class declares nothing beside `metadata`, so that a PartialObjectMetadata watch is enough."""
    return fields_of(cls) == ("metadata",)


def fields_of(cls: type[Struct]) -> tuple[str, ...]:
    """The Python names of a class' fields, in order."""
    return cls.__struct_fields__  # type: ignore[attr-defined,no-any-return]  # msgspec's, hidden from type checkers
