"""Logs: one line a message on standard error, for people (console) or machines (JSON).

Configured once, by the command line; a program that embeds asyncop configures structlog itself. The standard library's
logging (aiohttp, asyncio, the client library, a user's own) goes through the same output. Logging never raises: what
can't be written as asked is written as well as it can be, and where there is no standard error any more, not at all.

JSON keys: `ts` (RFC 3339), `level`, `logger`, `msg`, `controller`, `namespace`, `name`, `reconcileID`, `err`, then what
else the line says, `stacktrace` last.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from types import TracebackType

LogFormat = Literal["auto", "console", "json"]
Line = dict[str, Any]

_FIRST = ("controller", "namespace", "name", "reconcileID", "err")
_OWN = ("ts", "level", "logger", "msg", "stacktrace")
# At its debug level the client library logs whole bodies, Secrets included; asyncio tells of its selector.
_NEVER_DEBUG = ("kubernetes_asyncio", "aiohttp", "asyncio", "urllib3")


def configure(log_format: LogFormat = "auto", level: int = logging.INFO) -> None:
    """Send what is logged from now on to standard error; `auto` is console on a terminal and JSON otherwise."""
    is_console = log_format == "console" or (log_format == "auto" and _is_terminal())
    render = _Console() if is_console else _json
    structlog.configure(
        processors=[lambda logger, method, event: render(_line(logger.name, method, event))],
        wrapper_class=_forgiving(structlog.make_filtering_bound_logger(level)),
        logger_factory=_Output,
        cache_logger_on_first_use=True,
    )
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)
    logging.basicConfig(handlers=[_StandardLogging(render)], level=level, force=True)
    for name in _NEVER_DEBUG:
        logging.getLogger(name).setLevel(max(level, logging.INFO))
    sys.excepthook = _log_crash


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody caught ends the process; the log is where people look for it."""
    structlog.get_logger("asyncop").critical("Crashed", exc_info=error)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class _Output:
    """Where rendered lines go; one for each logger's name."""

    def __init__(self, name: str = "asyncop") -> None:
        self.name = name

    def write(self, line: bytes) -> None:
        try:
            stream = sys.stderr.buffer
            stream.write(line + b"\n")
            stream.flush()
        except (OSError, ValueError, AttributeError):
            return  # closed, full or gone: there is no place left to say so

    debug = info = warning = error = critical = write


class _StandardLogging(logging.Handler):
    """Takes what is logged by the standard library's means."""

    def __init__(self, render: Callable[[Line], bytes]) -> None:
        super().__init__()
        self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that don't fit the message: a logged line must not raise
            message = _text(record.msg)
        event = {"event": message, "exc_info": record.exc_info}
        _Output().write(self._render(_line(record.name, record.levelname.lower(), event)))


def _line(logger: str, level: str, event: MutableMapping[str, Any]) -> Line:
    """The line's keys in their order."""
    error = _exception(event.pop("exc_info", None))
    line: Line = {
        "ts": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "msg": event.pop("event", ""),
    }
    for key in _FIRST:
        value = event.pop(key, None)
        if value not in (None, ""):
            line[key] = value
    for key, value in event.items():
        line[f"{key}_" if key in _OWN else key] = value
    if error is not None:
        line.setdefault("err", f"{type(error).__name__}: {_text(error)}")
        line["stacktrace"] = error
    return line


def _exception(exc_info: Any) -> BaseException | None:
    """What a caller meant by `exc_info`: an exception, a tuple of one, or just true."""
    if exc_info is True:
        exc_info = sys.exc_info()
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1] if len(exc_info) > 1 else None
    return exc_info if isinstance(exc_info, BaseException) else None


def _json(line: Line) -> bytes:
    try:
        error = line.get("stacktrace")
        if isinstance(error, BaseException):
            line["stacktrace"] = "".join(traceback.format_exception(error))
        return _encoder.encode(line)
    except Exception:  # surrogates, cycles, huge numbers, a str() that raises: a logged line must not raise
        return _encoder.encode({_text(key): _text(value) for key, value in line.items()})


class _Console:
    """Lines for people; colours on a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        self._renderer = ConsoleRenderer(
            colors=_is_terminal() and not os.environ.get("NO_COLOR"),
            exception_formatter=plain_traceback,
            sort_keys=False,
            event_key="msg",
            timestamp_key="ts",
        )

    def __call__(self, line: Line) -> bytes:
        try:
            return self._rendered(dict(line))
        except Exception:  # a value whose repr() raises: a logged line must not raise
            return self._rendered({_text(key): _text(value) for key, value in line.items()})

    def _rendered(self, line: Line) -> bytes:
        line["ts"] = f"{datetime.now():%H:%M:%S.%f}"[:-3]
        error = line.pop("stacktrace", None)
        if isinstance(error, BaseException):
            line["exc_info"] = (type(error), error, error.__traceback__)
        return str(self._renderer(None, "", line)).encode(errors="backslashreplace")


def _text(value: object) -> str:
    try:
        return str(value).encode(errors="backslashreplace").decode()
    except Exception:  # it can't even be turned into text
        return f"<{type(value).__name__} that can't be shown>"


_encoder = msgspec.json.Encoder(enc_hook=_text)


def _forgiving(wrapper: type[Any]) -> type[Any]:
    """The logger class with methods that take any arguments without raising."""

    def forgive(method: Callable[..., Any]) -> Callable[..., Any]:
        def log(self: Any, message: Any, /, *args: Any, **fields: Any) -> Any:
            try:
                return method(self, message, *args, **fields)
            except Exception as error:  # a message that its arguments don't fit, a field named event
                return method(self, _text(message), badly_logged=_text(error), args=_text(args))

        return log

    names = ("debug", "info", "warning", "warn", "error", "critical", "fatal", "exception", "msg")
    return type("AsyncopLogger", (wrapper,), {name: forgive(getattr(wrapper, name)) for name in names})
