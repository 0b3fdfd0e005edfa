"""Logs: the keys, what goes where, and that nothing that is logged can raise."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

import pytest
import structlog

from asyncop.cli import logs


@pytest.fixture(autouse=True)
def _restored_logging(monkeypatch: pytest.MonkeyPatch):
    """Whatever a test configures ends with it."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    # A logger that is kept after its first use would outlive the test's configuration.
    configure = structlog.configure
    monkeypatch.setattr(
        structlog, "configure", lambda **given: configure(**given | {"cache_logger_on_first_use": False})
    )
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level, logging.raiseExceptions = before
    for name in ("kubernetes_asyncio", "aiohttp", "asyncio", "urllib3"):
        logging.getLogger(name).setLevel(logging.NOTSET)


class Logged:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def text(self) -> str:
        return self._capture.readouterr().err

    def line(self) -> dict[str, Any]:
        lines = self.text().splitlines()
        assert len(lines) == 1, lines
        line = json.loads(lines[0])
        assert isinstance(line, dict)
        return line


@pytest.fixture
def logged(capfd: pytest.CaptureFixture[str]) -> Logged:
    return Logged(capfd)


class Rude:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_json_lines_have_the_keys_in_their_order(logged: Logged) -> None:
    logs.configure("json")
    log = structlog.get_logger("asyncop.controller").bind(name="a", controller="web", namespace="default")

    log.info("Started", count=3, reconcileID="1f", err="boo")

    line = logged.line()
    first = ["ts", "level", "logger", "msg", "controller", "namespace", "name", "reconcileID", "err", "count"]
    assert list(line) == first
    assert line["ts"].endswith("Z")
    assert (line["level"], line["logger"], line["msg"], line["count"]) == ("info", "asyncop.controller", "Started", 3)


def test_an_exception_becomes_err_and_stacktrace(logged: Logged) -> None:
    logs.configure("json")
    try:
        raise ValueError("boo")
    except ValueError as error:
        structlog.get_logger("asyncop").error("Failed", exc_info=error)

    line = logged.line()
    assert line["err"] == "ValueError: boo"
    assert line["stacktrace"].startswith("Traceback")


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    ("message", "args", "fields"),
    [
        ("100% sure", (), {}),
        ("%d", ("x",), {}),
        ("%s %s", (1,), {}),
        ("Has fields of its own", (), {"ts": 1, "level": 2, "msg": 3, "event": 4, "stacktrace": 5}),
        ("Rude", (), {"value": Rude(), "values": [Rude()], "key": {Rude(): 1}}),
        ("Surrogate \ud800", (), {"\ud801": "\ud802"}),
        ("Huge", (), {"value": 2**100, "nan": float("nan"), "bytes": b"\xff", "set": {1}}),
        (Rude(), (), {}),
        ("Exception", (), {"exc_info": "text"}),
        ("Exception", (), {"exc_info": (None, None, None)}),
        ("Exception", (), {"exc_info": ValueError(Rude())}),
    ],
)
def test_nothing_that_is_logged_raises(logged: Logged, log_format: Any, message: Any, args: Any, fields: Any) -> None:
    logs.configure(log_format)

    structlog.get_logger("asyncop").info(message, *args, **fields)
    logging.getLogger("user").info(message, *args)

    assert len(logged.text().splitlines()) >= 2


def test_a_cycle_is_logged(logged: Logged) -> None:
    logs.configure("json")
    cycle: list[Any] = []
    cycle.append(cycle)

    structlog.get_logger("asyncop").info("Cycle", value=cycle)

    assert logged.line()["value"] == "[[...]]"


def test_a_closed_standard_error_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("json")
    with open("/dev/null", "w") as closed:
        pass
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        structlog.get_logger("asyncop").info("Nobody hears it")


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (logging.DEBUG, ["debug", "info", "warning"]),
        (logging.INFO, ["info", "warning"]),
        (logging.WARNING, ["warning"]),
    ],
)
def test_levels_hold_for_both_kinds_of_loggers(logged: Logged, level: int, heard: list[str]) -> None:
    logs.configure("json", level)
    for log in (structlog.get_logger("asyncop"), logging.getLogger("user")):
        log.debug("debug")
        log.info("info")
        log.warning("warning")

    assert [json.loads(line)["msg"] for line in logged.text().splitlines()] == heard * 2


def test_the_standard_librarys_logs_go_the_same_way(logged: Logged) -> None:
    logs.configure("json")

    logging.getLogger("aiohttp.server").error("Error %s", "x", exc_info=ValueError("boo"))

    line = logged.line()
    assert (line["logger"], line["level"], line["msg"]) == ("aiohttp.server", "error", "Error x")
    assert line["err"] == "ValueError: boo"


def test_the_client_librarys_debug_logs_are_never_written(logged: Logged) -> None:
    logs.configure("json", logging.DEBUG)

    logging.getLogger("kubernetes_asyncio.client.rest").debug("response body: %s", "a Secret")

    assert logged.text() == ""


def test_warnings_of_python_are_logged(logged: Logged) -> None:
    logs.configure("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    line = logged.line()
    assert line["logger"] == "py.warnings"
    assert "DeprecationWarning: old" in line["msg"]


def test_a_crash_is_logged(logged: Logged) -> None:
    logs.configure("json")

    sys.excepthook(ValueError, ValueError("boo"), None)

    line = logged.line()
    assert (line["level"], line["err"]) == ("critical", "ValueError: boo")


def test_console_lines_are_for_people(logged: Logged) -> None:
    logs.configure("console")
    try:
        raise ValueError("boo")
    except ValueError as error:
        structlog.get_logger("asyncop").error("Failed", controller="web", exc_info=error)

    text = logged.text()
    assert "Failed" in text.splitlines()[0]
    assert "controller=web" in text
    assert text.rstrip().endswith("ValueError: boo")
    assert "\x1b[" not in text


def test_auto_is_json_where_there_is_no_terminal(logged: Logged) -> None:
    logs.configure("auto")

    structlog.get_logger("asyncop").info("Hello")

    assert logged.line()["msg"] == "Hello"
