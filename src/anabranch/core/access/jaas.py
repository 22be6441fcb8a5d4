"""Logins as Kafka's JAAS texts write them: `Module required name="text" …;`.

What: `parse_jaas` gives the module's class without its package, and the options. Rule kept: no
value is repeated in an error. Source: Kafka's `sasl.jaas.config`. Not here: what options mean.
"""

from __future__ import annotations

import re

_MODULE = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*",
    re.DOTALL | re.IGNORECASE,
)
_OPTION = re.compile(r'([\w.$@-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


class JaasFault(ValueError):
    """A text that cannot be read as a login; the sentence repeats none of it."""


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module's short name, and its options. Raises JaasFault."""
    found = _MODULE.fullmatch(text)
    if found is None:
        raise JaasFault('cannot be read; write MODULE required username="…" password="…";')
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not plain else plain
        for name, quoted, plain in _OPTION.findall(found[2])
    }
    return found[1].rpartition(".")[2], options
