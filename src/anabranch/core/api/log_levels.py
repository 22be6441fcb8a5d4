"""Log levels of one broker: described and altered by the broker itself, kept by nobody (KIP-412).

Codes and texts are those of Kafka's ConfigAdminManager, measured on a running broker. The rule it
keeps: a request is checked whole before a level changes. What it is not: the loggers; the shell
lends them as `LogLevels`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from anabranch.core.controller.configs import APPEND, DELETE, SET
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.describe_configs import DescribeConfigsResourceResult

NAMES = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
ROOT = "root"
SOURCE_LOGGER = 6
"""Where a value comes from, numbered as DescribeConfigs sends it."""
STRING = 2
OPERATIONS = {APPEND: "APPEND", APPEND + 1: "SUBTRACT"}


class LogLevels(Protocol):
    """The loggers of a process: one of NAMES each, `root` for all that have none of their own."""

    def levels(self) -> Mapping[str, str]:
        """The level in effect of every logger."""
        ...

    def set_level(self, logger: str, level: str | None) -> None:
        """Give a logger a level, or None for that of `root`."""
        ...


class NoLogs:
    """A broker without loggers, in tests and simulations."""

    def levels(self) -> Mapping[str, str]:
        """None."""
        return {}

    def set_level(self, logger: str, level: str | None) -> None:
        """There is no logger whose level could be set."""
        raise KeyError(logger)


def describe_levels(
    loggers: LogLevels, keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """The level of every logger, or of those in `keys`."""
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=SOURCE_LOGGER, config_type=STRING
        )
        for name, level in sorted(loggers.levels().items())
        if not keys or name in keys
    ]


def alter_levels(
    loggers: LogLevels, broker_id: int, name: str, configs: Iterable[Any], *, validate_only: bool
) -> None:
    """Change the levels that IncrementalAlterConfigs names for the broker `name`.

    Raises ClientFault when the broker is another one, or for any bad level, before any is set.
    """
    check_broker(broker_id, name)
    known = loggers.levels()
    wanted = [(each.name, _level(known, each)) for each in configs]
    for logger, level in () if validate_only else wanted:
        loggers.set_level(logger, level)


def check_broker(broker_id: int, name: str) -> None:
    """Refuse a resource name that is not this broker's id."""
    try:
        asked = int(name)
    except ValueError:
        sentence = f"Node id must be an integer, but it is: {name}"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence) from None
    if asked != broker_id:
        sentence = f"Unexpected broker id, expected {broker_id}, but received {name}"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)


def _level(known: Mapping[str, str], config: Any) -> str | None:
    """The wanted level of one logger, None to give it back."""
    name, value, operation = config.name, config.value, config.config_operation
    if operation not in (SET, DELETE):
        what = OPERATIONS.get(operation, f"Unknown operation {operation}:")
        sentence = f"{what} operation is not allowed for the BROKER_LOGGER resource"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
    if name not in known:
        raise ClientFault(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == DELETE:
        if name == ROOT:
            sentence = "Removing the log level of the root logger is not allowed"
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        return None
    if value not in NAMES:
        raise ClientFault(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(NAMES)}",
        )
    return str(value)
