"""`--config` and `--set`: one tree, checked against what the controllers take.

Reading (`read`) knows YAML only; checking (`check`) knows the options' types, so it comes after the files are loaded.
Nothing is ignored in silence: a key that nobody knows, a value that doesn't fit and a key given twice are ConfigErrors
that name the path, what is there and what is expected. `null` counts as absent, as in Kubernetes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from asyncop.api.errors import ConfigError
from asyncop.cli import options
from asyncop.cli.shown import shown
from asyncop.cli.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncop.api.struct import Struct

Tree = dict[str, Any]

CONTROLLERS = "controllers"
_DOT = re.compile(r"(?<!\\)\.")


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """What the configuration says of one controller."""

    enabled: bool | None
    """None: it doesn't say."""
    options: Struct | None
    """None for a controller that takes none."""


def read(path: str | None, assignments: Iterable[str]) -> Tree:
    """The file's tree with the assignments (`a.b=value`) written over it.

    Raises:
        ConfigError: the file can't be read, isn't YAML, has a key twice; or an assignment isn't one.
    """
    tree = _read_file(path) if path else {}
    for assignment in assignments:
        _assign(tree, assignment)
    return tree


def check(
    tree: Tree, known: Mapping[str, type[Struct] | None], absent: Mapping[str, str]
) -> dict[str, ControllerConfig]:
    """What is said of each known controller, those of which nothing is said included.

    Args:
        tree: from `read`.
        known: the controllers' names and their options' types.
        absent: names that exist but not here, with why.

    Raises:
        ConfigError: a key is unknown or a value doesn't fit.
    """
    for key in tree:
        if key != CONTROLLERS:
            raise ConfigError(f"{key}: no such key; {nearest(key, [CONTROLLERS])}")
    controllers = _mapping(tree.get(CONTROLLERS), CONTROLLERS)
    for name in controllers:
        if name in absent:
            raise ConfigError(f"{CONTROLLERS}.{name}: {absent[name]}")
        if name not in known:
            raise ConfigError(f"{CONTROLLERS}.{name}: no such controller; {nearest(name, known)}")
    return {name: _controller(name, controllers.get(name), kind) for name, kind in known.items()}


def _controller(name: str, given: Any, kind: type[Struct] | None) -> ControllerConfig:
    path = f"{CONTROLLERS}.{name}"
    values = _mapping(given, path)
    enabled = values.pop("enabled", None)
    if not (enabled is None or isinstance(enabled, bool)):
        raise ConfigError(f"{path}.enabled: expected true or false, got {shown(enabled)}")
    if kind is not None:
        return ControllerConfig(enabled=enabled, options=options.convert(values, kind, path, also=["enabled"]))
    for key in values:
        raise ConfigError(f"{path}.{key}: no such key; {name} takes no options")
    return ControllerConfig(enabled=enabled, options=None)


def _mapping(value: Any, path: str) -> Tree:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a mapping, got {shown(value)}")
    return dict(value)


# -- reading


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # the C loader where it is built
    """YAML's safe loader that refuses a key given twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    problem = f"the key {key.value!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _read_file(path: str) -> Tree:
    try:
        with open(path, "rb") as file:
            tree = yaml.load(file, Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_place(error)}: {_problem(error)}") from error
    except (ValueError, RecursionError) as error:  # 2020-13-45 looks like a date
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{path}: expected a mapping with the key {CONTROLLERS}, got {type(tree).__name__}")
    return tree or {}


def _reason(error: OSError) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)


# -- --set


def _assign(tree: Tree, assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    keys = [key.replace("\\.", ".") for key in _DOT.split(path.strip())]
    if not equals or not all(keys):
        raise ConfigError(f"--set {assignment}: write PATH=VALUE, e.g. controllers.stuckPods.mode=delete")
    *parents, last = keys
    at = tree
    for depth, key in enumerate(parents):
        child = at.get(key)
        if child is None:
            child = at[key] = {}
        if not isinstance(child, dict):
            raise ConfigError(f"--set {assignment}: {'.'.join(keys[: depth + 1])} is not a mapping")
        at = child
    at[last] = _value(text.strip())


def _value(text: str) -> Any:
    """One value: `{a,b}` is a list as in Helm, the rest YAML; what isn't YAML (`*`) is text."""
    if not text:
        return ""
    if text.startswith("{") and text.endswith("}") and ":" not in text:
        inner = text[1:-1].strip()
        return [_value(part.strip()) for part in inner.split(",")] if inner else []
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError):
        return text
