"""The file mm2.properties: its keys, with what providers stand for put in.

What: Java's properties format, and Kafka's `${file:PATH:KEY}`, `${env:NAME}` and
`${directory:PATH:FILE}` where `config.providers` names them. Rules kept: a secret is read here and
nowhere else, and never shown; a mistake names file, key and remedy. Source: KIP-297, KIP-421,
KIP-887.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties

from anabranch.core.mirror.config import BadConfig, Config, read_config
from anabranch.pipelines.mirror.clusters import client_faults

PROVIDERS = "config.providers"
VARIABLE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")
"""Kafka's own: a provider, perhaps a path, and a key."""


def load_config(path: str | os.PathLike[str]) -> Config:
    """The flows of a file. Raises BadConfig, whose sentences name the file."""
    try:
        config = read_config(resolved(load_keys(path)))
        faults = list(client_faults(config))
        if faults:
            raise BadConfig(faults)
        return config
    except BadConfig as fault:
        raise BadConfig([f"{path}: {each}" for each in fault.faults]) from None


def load_keys(path: str | os.PathLike[str]) -> dict[str, str]:
    """The keys of a properties file as they stand there. Raises BadConfig."""
    try:
        content = Path(path).read_bytes()
    except OSError as fault:
        raise BadConfig([f"cannot be read: {fault.strerror}. Name another file."]) from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    try:
        return dict(javaproperties.load(io.StringIO(text)))
    except javaproperties.InvalidUEscapeError as fault:
        raise BadConfig([f"{fault}; write \\u and four hex digits."]) from None


def resolved(
    keys: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The keys with their variables replaced. Raises BadConfig."""
    names = [each.strip() for each in keys.get(PROVIDERS, "").split(",") if each.strip()]
    if not names:
        return dict(keys)
    faults: list[str] = []
    found = {}
    for key, text in keys.items():
        try:
            found[key] = VARIABLE.sub(_replacing(keys, names, environment or os.environ), text)
        except _NoValueError as fault:
            faults.append(f"{key}: {fault}")
    if faults:
        raise BadConfig(faults)
    return found


class _NoValueError(Exception):
    """A variable without a value; the text says why."""


def _replacing(
    keys: Mapping[str, str], names: list[str], environment: Mapping[str, str]
) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        name, path, key = match[1], match[2] or "", match[3]
        if name not in names:
            return match[0]  # as Kafka: a value may have a dollar of its own
        kind = keys.get(f"{PROVIDERS}.{name}.class", "").rpartition(".")[2]
        read = _READERS.get(kind)
        if read is None:
            known = ", ".join(_READERS)
            raise _NoValueError(
                f"{PROVIDERS}.{name}.class = {kind or '(missing)'} cannot be used; known: {known}."
            )
        return read(path, key, environment)

    return replace


def _of_file(path: str, key: str, _environment: Mapping[str, str]) -> str:
    try:
        found = load_keys(path)
    except BadConfig as fault:
        raise _NoValueError(f"{path} {fault}") from None
    if key not in found:
        raise _NoValueError(f"{path} has no key {key!r}; add it, or correct the name.")
    return found[key]


def _of_environment(_path: str, key: str, environment: Mapping[str, str]) -> str:
    if key not in environment:
        raise _NoValueError(f"the environment has no variable {key!r}; set it.")
    return environment[key]


def _of_folder(path: str, key: str, _environment: Mapping[str, str]) -> str:
    try:
        return (Path(path) / key).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise _NoValueError(f"{Path(path) / key} cannot be read: {fault}") from None


_READERS: dict[str, Callable[[str, str, Mapping[str, str]], str]] = {
    "FileConfigProvider": _of_file,
    "EnvVarConfigProvider": _of_environment,
    "DirectoryConfigProvider": _of_folder,
}
