"""Settings as texts with where they stand: a Kafka-style `server.properties` and `--set key=value`.

The rule it keeps: a mistake is told with file, line and key, and what to write instead; an unknown
key is a warning that names the nearest known one. What it is not: it gives texts, not values.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from anabranch.core.settings.catalogue import (
    ALIASES,
    BROKER_SETTINGS,
    NEVER_EXISTED,
    WITHOUT_EFFECT,
)
from anabranch.core.settings.setting import ConfigFault, Setting
from anabranch.core.settings.validation import Resource, setting_of

COMMAND_LINE = "--set"
LIKENESS = 0.75
"""How alike an unknown key and a known one must be before the known one is proposed."""
PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.")
"""Settings that Kafka hands to plug-ins unread."""


class ConfigError(Exception):
    """A configuration that cannot be used, in one line for people."""


class Entry(msgspec.Struct, frozen=True):
    """One text and where it stands, such as `server.properties:12`."""

    text: str
    origin: str


def read_properties(path: str) -> tuple[dict[str, Entry], list[str]]:
    """The entries of a properties file by key, and warnings; raises ConfigError."""
    import javaproperties  # a node without a file starts 30 ms sooner

    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; name another") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    entries: dict[str, Entry] = {}
    warnings = []
    line = 1
    try:
        for item in javaproperties.parse(io.StringIO(_decoded(content), newline=None)):
            if isinstance(item, javaproperties.KeyValue):
                origin = f"{path}:{line}"
                if item.key in entries:
                    warnings.append(f"{origin}: {item.key} appears twice; the last value applies")
                entries[item.key] = Entry(item.value, origin)
            line += item.source.count("\n")
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path}:{line}: {error}; write \\u and four hex digits") from None
    return entries, warnings


def _decoded(content: bytes) -> str:
    """UTF-8, or else Latin-1, which is what Java's properties files were."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def read_overrides(overrides: Sequence[str]) -> dict[str, Entry]:
    """The entries of `--set key=value`, the last of a key winning; raises ConfigError."""
    entries = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{COMMAND_LINE} {override}: write key=value")
        entries[key.strip()] = Entry(text, COMMAND_LINE)
    return entries


def without_aliases(entries: Mapping[str, Entry]) -> tuple[dict[str, Entry], list[str]]:
    """The entries under the names that Kafka has, and a warning for each name that it has not, and
    for each setting that is set in vain."""
    known: dict[str, Entry] = {}
    warnings = []
    for key, entry in entries.items():
        if key in ALIASES:
            warnings.append(f"{entry.origin}: {key} is read as {ALIASES[key]}; use that name")
            if ALIASES[key] not in entries:
                known[ALIASES[key]] = entry
        elif key in NEVER_EXISTED:
            warnings.append(f"{entry.origin}: {key} is ignored: {NEVER_EXISTED[key]}")
        else:
            known[key] = entry
            if key in WITHOUT_EFFECT and entry.text.strip().lower() not in ("", "false"):
                warnings.append(f"{entry.origin}: {key} has no effect: {WITHOUT_EFFECT[key]}")
            if not is_known(key):
                warnings.append(
                    f"{entry.origin}: {key} is not a setting and is ignored{nearest(key)}"
                )
    return known, warnings


def is_known(key: str) -> bool:
    """Whether this is the name of a setting, or of one that a plug-in of Kafka's would read."""
    return setting_of(Resource.BROKER, key) is not None or key.startswith(PLUGIN_PREFIXES)


def nearest(key: str) -> str:
    """A proposal for a misspelt key, or nothing."""
    names = (*BROKER_SETTINGS, *ALIASES)
    found = difflib.get_close_matches(key, names, n=1, cutoff=LIKENESS)
    return f"; did you mean {found[0]}?" if found else ""


def told(fault: ConfigFault, entries: Mapping[str, Entry]) -> ConfigError:
    """The fault with where the setting stands and what it may be."""
    entry = entries.get(fault.name)
    origin = "default" if entry is None else entry.origin
    where = f"{origin}: {fault.name}: " if fault.name else ""
    setting = BROKER_SETTINGS.get(fault.name)
    remedy = ""
    if setting is not None and fault.message.startswith("Invalid value"):
        remedy = f" ({allowed(setting)})"
    return ConfigError(f"{where}{fault.message}{remedy}")


def allowed(setting: Setting) -> str:
    """What a setting may be, and what it is when the line is left out."""
    default = "" if setting.default is None else f"; default {setting.default or 'empty'}"
    return f"allowed: {setting.type.name.lower()} {setting.limits}".rstrip() + default
