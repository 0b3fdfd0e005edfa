"""`Struct`: how a user declares the part of an object that a controller reads.

Structs are frozen, keyword-only msgspec Structs with Kubernetes' names on the wire. Only declared fields are decoded
and kept; unknown ones are ignored. They hold no reference cycles, so the garbage collector need not track them.
Bounds given by `Annotated[int, msgspec.Meta(ge=1)]` are for a CRD's schema: they are taken off before msgspec sees the
fields, since an object that the server accepted must never fail to decode here.
"""

from __future__ import annotations

import contextlib
import sys
import typing
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from asyncop.api.names import wire_name

if TYPE_CHECKING:
    from typing import dataclass_transform

    def field(*, default: Any = ..., default_factory: Any = ..., name: str | None = None) -> Any:
        """A field with a name on the wire given by hand, or a default made for each instance."""

    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
    class Struct:
        """Base of a nested part of an object: a frozen, keyword-only Struct."""

        def __init_subclass__(cls, *, tag: str | None = None, tag_field: str | None = None) -> None: ...

else:
    from msgspec import field

    def _without_bounds(hint: Any) -> Any:
        """`hint` with every `msgspec.Meta` taken out of its `Annotated` parts."""
        origin = typing.get_origin(hint)
        if origin is Annotated:
            inner, *extras = typing.get_args(hint)
            kept = tuple(extra for extra in extras if not isinstance(extra, msgspec.Meta))
            inner = _without_bounds(inner)
            return Annotated[(inner, *kept)] if kept else inner
        args = typing.get_args(hint)
        if not args or origin is typing.Literal:
            return hint
        plain = tuple(_without_bounds(arg) if not isinstance(arg, list) else arg for arg in args)
        if plain == args:
            return hint
        if isinstance(hint, type(int | str)):
            return typing.Union[plain]  # noqa: UP007 - built from a tuple
        return hint.copy_with(plain) if hasattr(hint, "copy_with") else origin[plain]

    def _decoded_annotations(namespace: dict[str, Any]) -> dict[str, Any]:
        """The annotations that msgspec is to decode by; one that can't be evaluated yet is left as it is."""
        module = sys.modules.get(namespace.get("__module__", ""))
        scope = dict(vars(module)) if module else {}
        scope.update(namespace)
        plain = {}
        for name, hint in namespace.get("__annotations__", {}).items():
            if isinstance(hint, str) and "Annotated" in hint:
                with contextlib.suppress(NameError):
                    hint = eval(hint, scope)
            plain[name] = hint if isinstance(hint, str) else _without_bounds(hint)
        return plain

    class _StructMeta(msgspec.StructMeta):
        """Makes every subclass frozen, keyword-only, untracked by the collector and named as Kubernetes names it."""

        def __new__(mcls, name, bases, namespace, **config):
            if "__annotations__" in namespace:
                namespace["__declared__"] = dict(namespace["__annotations__"])
                namespace["__annotations__"] = _decoded_annotations(namespace)
            config = {"frozen": True, "kw_only": True, "gc": False, "rename": wire_name} | config
            return super().__new__(mcls, name, bases, namespace, **config)

    class Struct(msgspec.Struct, metaclass=_StructMeta):
        """Base of a nested part of an object: a frozen, keyword-only Struct with Kubernetes' names on the wire.

        Fields that the server may leave out need a default. Sequences are declared as tuples (`tuple[str, ...]`).
        """

        __declared__: ClassVar[dict[str, Any]] = {}
