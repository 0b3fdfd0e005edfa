"""What a user declares, and what is refused while the file is loaded."""

from __future__ import annotations

import pytest

import asyncop
from asyncop.controller import collecting


class Pod(asyncop.Object, api_version="v1", kind="Pod"):
    pass


class Options(asyncop.Struct):
    pass


def test_a_decorated_function_belongs_to_the_load_it_was_made_in() -> None:
    with collecting() as first:

        @asyncop.reconciler(Pod)
        async def one(pod: Pod, ctx: asyncop.Context) -> None: ...

    with collecting() as second:

        @asyncop.reconciler("deployments.apps", name="other")
        async def two(obj: asyncop.UntypedObject, ctx: asyncop.Context) -> None: ...

    assert [declared.name for declared in first.reconcilers] == ["one"]
    assert [declared.name for declared in second.reconcilers] == ["other"]


def test_outside_of_a_load_a_decorator_registers_nowhere() -> None:
    @asyncop.reconciler(Pod)
    async def alone(pod: Pod, ctx: asyncop.Context) -> None: ...

    with collecting() as declarations:
        pass
    assert declarations.reconcilers == []
    assert alone.name == "alone"


def test_two_controllers_of_one_name_are_refused() -> None:
    with collecting():
        asyncop.reconciler(Pod, name="a")(lambda pod, ctx: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(asyncop.ConfigError, match="two controllers are named 'a'"):
            asyncop.reconciler(Pod, name="a")(lambda pod, ctx: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nmae": "x"}, "unknown argument 'nmae'"),
        ({"namespaces": "default"}, r"\['default'\]"),
        ({"labels": "a in b"}, "not a label selector"),
        ({"timeout": "soon"}, "not a duration"),
        ({"workers": 0}, "at least one"),
        ({"options": dict}, "class Options\\(asyncop.Struct\\)"),
        ({"options": Options()}, "class Options\\(asyncop.Struct\\)"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_file_is_loaded(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        asyncop.reconciler(Pod, **arguments)(lambda pod, ctx: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [int, 5, "", asyncop.Object])
def test_what_names_no_kind_is_refused(kind: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        asyncop.reconciler(kind)(lambda pod, ctx: None)  # type: ignore[call-overload]


def test_a_function_that_is_not_async_is_refused_when_the_file_is_loaded() -> None:
    def plain(*arguments: object) -> None: ...

    with pytest.raises(TypeError, match="plain must be async: async def plain"):
        asyncop.reconciler(Pod)(plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plain must be async: async def plain"):
        asyncop.task(plain)  # type: ignore[arg-type]


def test_a_reconciler_without_its_kind_is_refused_when_the_file_is_loaded() -> None:
    with pytest.raises(TypeError, match="names no kind"):

        @asyncop.reconciler  # type: ignore[call-overload,untyped-decorator,unused-ignore]
        async def forgot(pod: Pod, ctx: asyncop.Context) -> None: ...


def test_predicates_combine_also_with_plain_functions() -> None:
    def named_a(new: Pod, old: Pod | None) -> bool:
        return new.metadata.name == "a"

    a, b = (Pod(metadata=asyncop.ObjectMeta(name=name, generation=1)) for name in "ab")
    both = asyncop.generation_changed & named_a
    either = named_a | asyncop.labels_changed
    assert both(a, None)
    assert not both(b, None)
    assert not both(a, a)
    assert either(a, a)
    assert not either(b, b)
    assert (~asyncop.generation_changed)(a, a)
