"""From a client's certificate to its principal's name: `ssl.principal.mapping.rules`.

What: `distinguished_name` writes a certificate's subject as Java does (RFC 2253, the last part
first); `MappingRules` makes a short name of it by the first rule that fits, or leaves it as it is.

    rules := rule, …    rule := DEFAULT or RULE:pattern/replacement/[L|U]

In a replacement `$1` is the pattern's first group; L and U make the name lower and upper case.
Source: KIP-371. Patterns are Python's regular expressions, which read those of Java's that rules
use: `\\w` and `\\d` mean ASCII, and sets within sets are refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence

SHORT = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "organizationName": "O", "organizationalUnitName": "OU", "streetAddress": "STREET",
    "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
"""Names of attributes as OpenSSL has them -> as RFC 2253 has them; Java writes others in hex."""
EMAIL = "emailAddress"
EMAIL_OID = "1.2.840.113549.1.9.1"
IA5_STRING = 0x16
SPECIAL = re.compile(r'([,=+<>#;"\\])')
BLANK = r"\ "
"""Before and behind a text; within it a blank is written as it is."""
DEFAULT = "DEFAULT"
ANY_SUBJECT = "ANONYMOUS"

Subject = Iterable[Iterable[tuple[str, str]]]
"""As `SSLObject.getpeercert` gives it: parts, each of some (attribute, text)."""

_RULES = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL
)
_GROUP = re.compile(r"\\(.)|\$(\d+)")


class RuleFault(ValueError):
    """Rules that cannot be read."""


def distinguished_name(subject: Subject) -> str:
    """The subject as Java writes it."""
    parts = ["+".join(_attribute(*each) for each in part) for part in subject]
    return ",".join(reversed(parts))


def _attribute(name: str, text: str) -> str:
    if name == EMAIL:
        encoded = text.encode()
        size = len(encoded)
        length = bytes((size,)) if size < 128 else bytes((0x81, min(size, 255)))
        return f"{EMAIL_OID}=#{bytes((IA5_STRING,)).hex()}{length.hex()}{encoded.hex()}"
    inner = text.strip(" ")
    before, found, after = text.partition(inner) if inner else (text, "", "")
    blanks = (BLANK * len(before), BLANK * len(after))
    escaped = SPECIAL.sub(r"\\\1", found).replace("\0", "\\00").join(blanks)
    return f"{SHORT.get(name, name)}={escaped}"


class MappingRules:
    """Rules as `ssl.principal.mapping.rules` has them. Raises RuleFault."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        at = 0
        while at < len(text.rstrip()):
            found = _RULES.match(text, at)
            if found is None:
                raise RuleFault(f"{text[at:]!r} is neither DEFAULT nor RULE:pattern/replacement/")
            self._rules.append(None if found[1] else _rule(found[2], found[3], found[4]))
            at = found.end()

    def name_of(self, subject: str) -> str:
        """The name of a principal whose certificate has this subject. Raises RuleFault where no
        rule fits."""
        for rule in self._rules:
            if rule is None:
                return subject
            pattern, replacement, case = rule
            found = pattern.fullmatch(subject)
            if found is not None:
                name = _filled(replacement, found)
                return {"L": name.lower(), "U": name.upper()}.get(case, name)
        raise RuleFault(f"no rule of ssl.principal.mapping.rules fits {subject!r}")


def _rule(pattern: str, replacement: str, case: str) -> tuple[re.Pattern[str], str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # sets within sets, which Java reads otherwise
            compiled = re.compile(pattern.replace("\\/", "/"), re.ASCII)
    except (re.error, Warning) as fault:
        raise RuleFault(f"{pattern!r} is no pattern: {fault}") from None
    numbers: Sequence[str] = re.findall(r"\$(\d+)", replacement)
    if any(int(each) > compiled.groups for each in numbers):
        raise RuleFault(f"{replacement!r} names a group that {pattern!r} does not have")
    return compiled, replacement, case


def _filled(replacement: str, found: re.Match[str]) -> str:
    return _GROUP.sub(
        lambda part: part[1] if part[1] is not None else found[int(part[2])] or "", replacement
    )
