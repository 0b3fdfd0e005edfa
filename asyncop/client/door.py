"""The only door to kubernetes_asyncio, opened cheaply.

A plain `import kubernetes_asyncio`, of whatever part, runs some 840 generated modules: a third of a second and twice
the memory of all that asyncop needs. The names of its three generated packages are a plain table from name to module,
so they are served by `__getattr__` (PEP 562) instead: a model's module is run when somebody first asks for the model.

Promises: after `open_door()` every name of kubernetes_asyncio imports as before, is the same object wherever it is
reached from, pickles, and shows in `dir()`; a copy that the program has imported already is left as it is; files that
don't look like such a table (another version) are run plainly. Nothing else is patched. What is read from the package
once it is open is up to `config`.
"""

from __future__ import absolute_import, annotations

import importlib
import importlib.machinery
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_PACKAGE = "kubernetes_asyncio"
_GENERATED = frozenset({f"{_PACKAGE}.client", f"{_PACKAGE}.client.models", f"{_PACKAGE}.client.api"})

_IMPORT = re.compile(rf"^from ({_PACKAGE}\.client\.[\w.]+) import (\w+)\n", re.MULTILINE)
_NAMES = re.compile(r"^__all__ = \[\n((?:    \"\w+\",\n)+)\]\n?", re.MULTILINE)
_VERSION = re.compile(r"^__version__ = \"([\w.+-]+)\"\n", re.MULTILINE)
_HARMLESS = re.compile(r"^(?:#.*|from __future__ import absolute_import|\s*)\n?|\"\"\"[^\"]*\"\"\"\n?", re.MULTILINE)

_lock = threading.Lock()


def open_door() -> None:
    """Import kubernetes_asyncio with its generated packages lazy, unless somebody has imported it already.

    Raises:
        ImportError: it isn't installed, or broken.
    """
    with _lock:
        if _PACKAGE in sys.modules:
            return
        sys.meta_path.insert(0, _Finder)
        try:
            importlib.import_module(_PACKAGE)
            importlib.import_module(f"{_PACKAGE}.client.api")
        finally:
            sys.meta_path.remove(_Finder)


class _Finder:
    """Finds the generated packages where the normal finder does, but has them loaded lazily."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _GENERATED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _LazyLoader(spec.loader.name, spec.loader.path)
        return spec


class _LazyLoader(importlib.machinery.SourceFileLoader):
    """Loads a generated package as a table of names; anything else as Python does."""

    def exec_module(self, module: ModuleType) -> None:
        table = _Table.read(self.get_data(self.path).decode())
        if table is None:
            super().exec_module(module)
        else:
            table.install(module)


class _Table:
    """What a generated package's source says: which module each of its names is in."""

    def __init__(self, homes: dict[str, str], names: list[str], version: str | None) -> None:
        self._homes, self._names, self._version = homes, names, version

    @classmethod
    def read(cls, source: str) -> _Table | None:
        """None if the source holds anything but imports, `__all__`, a version, comments and a docstring."""
        names = _NAMES.search(source)
        homes = {name: home for home, name in _IMPORT.findall(source)}
        if names is None or not homes:
            return None
        version = _VERSION.search(source)
        rest = _IMPORT.sub("", source)
        for harmless in (_NAMES, _VERSION, _HARMLESS):
            rest = harmless.sub("", rest)
        listed = re.findall(r"\w+", names[1])
        if rest.strip() or not homes.keys() >= set(listed):
            return None
        return cls(homes, listed, version[1] if version else None)

    def install(self, module: ModuleType) -> None:
        """Give the module the names, all of them unloaded."""
        package, homes = module.__name__, self._homes
        # Running the imports would also have bound the submodules that they name: `models.v1_pod`, `client.api`.
        children = {
            home.removeprefix(f"{package}.").partition(".")[0]
            for home in homes.values()
            if home.startswith(f"{package}.")
        }
        namespace = vars(module)

        def __getattr__(name: str) -> Any:  # noqa: N807 - PEP 562
            if name in homes:
                value = getattr(importlib.import_module(homes[name]), name)
            elif name in children:
                value = importlib.import_module(f"{package}.{name}")
            else:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            namespace[name] = value
            return value

        def __dir__() -> list[str]:  # noqa: N807 - PEP 562
            return sorted((namespace.keys() | homes.keys() | children) - {"__getattr__", "__dir__"})

        namespace.update(__getattr__=__getattr__, __dir__=__dir__, __all__=list(self._names))
        namespace["absolute_import"] = absolute_import  # they begin with this import, so it is one of their names
        if self._version is not None:
            namespace["__version__"] = self._version
