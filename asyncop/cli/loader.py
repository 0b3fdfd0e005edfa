"""Loads what the user wrote: FILEs and modules, each into the declarations that its decorators make.

A FILE runs as a module named after it, with its folder first on `sys.path`, so that it can import its neighbours. What
is wrong with it, a syntax error or any exception while it is loaded, is a ConfigError that names the file, the line and
the error; its `__cause__` is the original. Decorators of an imported neighbour belong to the FILE that imports it.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from asyncop.api.errors import ConfigError
from asyncop.controller.declaration import Declarations, collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def load(files: Iterable[str], modules: Iterable[str]) -> Declarations:
    """Everything that they declare, in their order.

    Raises:
        ConfigError: one is missing, fails, or declares nothing; or two declarations have one name.
    """
    everything = Declarations()
    before = frozenset(sys.modules)
    for file in files:
        merge(everything, _load_file(file))
    for module in modules:
        if module in before or module not in sys.modules:  # else a FILE has imported it, so it has been loaded
            merge(everything, _load_module(module))
    return everything


def merge(into: Declarations, more: Declarations) -> None:
    """Add `more`; raises ConfigError for a name that is there already."""
    for reconciler in more.reconcilers:
        into.add(reconciler)
    for task in more.tasks:
        into.add(task)


def _load_file(file: str) -> Declarations:
    if not os.path.isfile(file):  # unlike Path.is_file, it takes any text without raising
        raise ConfigError(f"{file}: {'not a file' if os.path.exists(file) else 'no such file'}")
    path = Path(file).resolve()
    if _is_loaded(path):
        return Declarations()  # a FILE before it has imported it, so its declarations are there already
    _put_first(str(path.parent))
    return _declared(file, str(path), lambda: _run(path))


def _load_module(name: str) -> Declarations:
    if not sys.flags.safe_path:
        _put_first(str(Path.cwd()))
    return _declared(f"-m {name}", name, lambda: _import(name))


def _is_loaded(path: Path) -> bool:
    module = sys.modules.get(path.stem)
    return getattr(module, "__file__", None) == str(path)


def _put_first(folder: str) -> None:
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)


def _run(path: Path) -> None:
    name = _module_name(path.stem)
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be loaded")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


def _module_name(stem: str) -> str:
    """The file's own name, so that a neighbour that imports it gets the same module; another if that one is taken."""
    name = stem
    while name in sys.modules or name in sys.stdlib_module_names:
        name = f"{name}_"
    return name


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"there is no module {error.name}") from error
        raise


def _declared(label: str, origin: str, run: Callable[[], None]) -> Declarations:
    """What `run` declares. `origin`, a path or a module's name, is where errors are looked for."""
    with collecting() as declarations:
        try:
            run()
        except SystemExit as error:
            raise ConfigError(f"{label}{_line_of(error, origin)}: it ended the process while it was loaded") from error
        except ConfigError as error:
            raise ConfigError(f"{label}{_line_of(error, origin)}: {error}") from error
        except SyntaxError as error:
            raise ConfigError(_syntax_error(error, label, origin)) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the user's code may raise anything; it is told with its place, as one line
            text = traceback.format_exception_only(error)[-1].strip()
            raise ConfigError(f"{label}{_line_of(error, origin)}: {text}") from error
    if not (declarations.reconcilers or declarations.tasks):
        raise ConfigError(f"{label}: it declares no reconciler; decorate a function with @asyncop.reconciler(…)")
    return declarations


def _line_of(error: BaseException, origin: str) -> str:
    """`:LINE`, the innermost line of the file or module that led to the error; empty if it wasn't even entered."""
    lines = [
        number
        for frame, number in traceback.walk_tb(error.__traceback__)
        if origin in (frame.f_code.co_filename, frame.f_globals.get("__name__"))
    ]
    return f":{lines[-1]}" if lines else ""


def _syntax_error(error: SyntaxError, label: str, origin: str) -> str:
    file = label if error.filename in (origin, None) else error.filename
    line = f":{error.lineno}" if error.lineno else ""
    return f"{file}{line}: {type(error).__name__}: {error.msg}"
