"""Logins as Kafka's JAAS texts write them: `Module required name="text" …;`.

What: `parse_jaas` gives the module's class without its package, and the options. Comments are
`// to the end of the line` and `/* … */`; quotes are single or double, with Java's escapes. Rules
kept: no value is repeated in an error; what is neither an option nor a comment is refused, since an
operator who meant it would otherwise have other users than the text seems to have. Texts without
quotes may have more characters than Kafka lets them have. Source: Kafka's `JaasConfig`, Java's
`StreamTokenizer`. Not here: what options mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FLAGS = ("required", "requisite", "sufficient", "optional")
FORM = 'cannot be read; write MODULE required username="…" password="…";'
ESCAPED = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip

_SKIPPED = re.compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(
    r""" "(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)" | '(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
       | (?P<sign>[=;]) | (?P<word>(?:(?!//|/\*)[^\s;="',])+) """,
    re.VERBOSE,
)
_VALUE = re.compile(r"""(?P<word>(?!=)(?:(?!//|/\*)[^\s;"',])+)""")
_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))")


class JaasFault(ValueError):
    """A text that cannot be read as a login; the sentence repeats none of it."""


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module's short name, and its options. Raises JaasFault."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (";", True) or tokens[0][1]:
        raise JaasFault(FORM)
    (module, _), (flag, _), *parts = tokens[:-1]
    if flag.lower() not in FLAGS or len(parts) % 3:
        raise JaasFault(FORM)
    options = {}
    for name, sign, (value, is_sign) in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if name[1] or sign != ("=", True) or is_sign:
            raise JaasFault(FORM)
        options[name[0]] = value
    return module.rpartition(".")[2], options


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether it is `=` or `;`, and not a text. Raises JaasFault."""
    at, pattern = 0, _TOKEN
    while True:
        if (skipped := _SKIPPED.match(text, at)) is not None:
            at = skipped.end()
        if at == len(text):
            return
        found = pattern.match(text, at) or _TOKEN.match(text, at)
        if found is None:
            raise JaasFault(FORM)
        at = found.end()
        parts = found.groupdict()
        sign, word = parts.get("sign"), parts.get("word")
        pattern = _VALUE if sign == "=" else _TOKEN
        if sign is not None:
            yield sign, True
        elif word is not None:
            yield word, False
        else:
            quoted = parts["double"] if parts["double"] is not None else parts["single"]
            yield _ESCAPE.sub(_unescaped, quoted or ""), False


def _unescaped(found: re.Match[str]) -> str:
    octal, letter = found.groups()
    return chr(int(octal, 8)) if octal else ESCAPED.get(letter, letter)
