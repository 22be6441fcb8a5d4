"""Structured logs: one event, one line.

What: `logger("name")` gives an `EventLog` whose calls take a short sentence and named values. Text
lines are for people (`time LEVEL name: sentence key=value`), JSON lines for programs. Why not the
format strings of the standard library: a value that is named can be searched for.

Rule kept: nothing on the data path logs. Where the lines go: standard error, and a file where
`keep` names one. `LogLevels` lends the loggers to Kafka's admin clients under Kafka's names of
levels (KIP-412).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = "anabranch"
FIELDS = "anabranch_fields"

WATCHERS: list[Callable[[logging.LogRecord], None]] = []
"""Who gets every event from INFO on, whatever levels and handlers the process has set: the test
fixture keeps what the nodes of a cluster log. Empty in a node that serves."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


TRACE, FATAL = 5, logging.CRITICAL
KAFKA_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": FATAL,
}
KAFKA_ROOT = "root"


class LogLevels:
    """The node's loggers by name, with `root` above them all."""

    def levels(self) -> dict[str, str]:
        """The level in effect of every logger, by Kafka's names."""
        parts = [name for name in logging.root.manager.loggerDict if name.startswith(f"{ROOT}.")]
        return {KAFKA_ROOT: _kafka_name(ROOT), **{name: _kafka_name(name) for name in parts}}

    def set_level(self, logger: str, level: str | None) -> None:
        """Give a logger a level, or back to what `root` has."""
        name = ROOT if logger == KAFKA_ROOT else logger
        logging.getLogger(name).setLevel(KAFKA_LEVELS[level] if level else logging.NOTSET)


def _kafka_name(name: str) -> str:
    """The lowest of Kafka's levels that is not below the one in effect."""
    number = logging.getLogger(name).getEffectiveLevel()
    return next((each for each, level in KAFKA_LEVELS.items() if level >= number), "FATAL")


class EventLog:
    """Writes events of one part of the node."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    @property
    def is_debug(self) -> bool:
        """Whether somebody reads debug events: they may be dear to make."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, sentence: str, **fields: Any) -> None:
        """For those who look for a bug."""
        self._write(logging.DEBUG, sentence, fields)

    def info(self, sentence: str, **fields: Any) -> None:
        """Something that an operator expects to happen."""
        self._write(logging.INFO, sentence, fields)

    def warning(self, sentence: str, **fields: Any) -> None:
        """Something that an operator should look at some time."""
        self._write(logging.WARNING, sentence, fields)

    def error(self, sentence: str, **fields: Any) -> None:
        """Something that an operator should look at now."""
        self._write(logging.ERROR, sentence, fields)

    def _write(self, level: int, sentence: str, fields: dict[str, Any]) -> None:
        extra = {FIELDS: fields}
        if WATCHERS and level >= logging.INFO:
            name = self._logger.name
            event = self._logger.makeRecord(name, level, "", 0, sentence, (), None, extra=extra)
            for watcher in tuple(WATCHERS):
                watcher(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, sentence, extra=extra)


def logger(name: str) -> EventLog:
    """The event log of a part of the node: `logger("connection")`."""
    return EventLog(name)


def instant(seconds: float) -> str:
    """A time as ISO 8601 in UTC with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"


def shown(value: Any) -> str:
    """A value as it stands in a text line: quoted when it would not be one word."""
    text = str(value)
    if text and text.isprintable() and not any(each in text for each in ' "='):
        return text
    return json.dumps(text, ensure_ascii=False)


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO node: ready brokers=1`"""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a message that holds line breaks is folded."""
        fields = getattr(record, FIELDS, {})
        named = "".join(f" {name}={shown(value)}" for name, value in fields.items())
        part = record.name.removeprefix(ROOT + ".")
        message = " ".join(record.getMessage().splitlines())
        return f"{instant(record.created)} {record.levelname} {part}: {message}{named}"


class JsonLines(logging.Formatter):
    """One JSON object a line, the fields beside `time`, `level`, `part` and `event`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON; values that JSON has no type for are written as text."""
        line = {
            "time": instant(record.created),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix(ROOT + "."),
            "event": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(level: str = "info", form: str = "text") -> None:
    """Send the node's events to standard error; called once, by the command that runs a node."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    root.propagate = False


def keep(path: str) -> None:
    """Append the node's events from INFO on to a file, too; the level of standard error stays.
    Raises OSError."""
    root = logging.getLogger(ROOT)
    for each in root.handlers:
        each.setLevel(root.level)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(TextLines())
    root.addHandler(handler)
    root.setLevel(min(root.level, logging.INFO))
