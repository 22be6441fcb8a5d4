"""URLs of stores, and how they may be shown: in logs, errors and commands to copy.

The rule it keeps: what libpq takes as a secret is left out, wherever it stands in the URL; the user
stays, since a command to copy needs it. Of what libpq does not take, such as a password with an @,
rather too much is left out.
"""

from __future__ import annotations

import re

SQLITE = "sqlite://"
PASSWORD = re.compile(r"(//[^:@/]*):.*@")
PARAMETER = re.compile(r"(?<=[?&])([^?&=]*)=[^&]*&?")
ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
"""libpq decodes the names of parameters, too."""
SECRET_WORDS = "password", "secret", "token", "scram"


def without_secrets(url: str) -> str:
    """The URL without the user's password and parameters such as `password`."""
    return PASSWORD.sub(r"\1@", PARAMETER.sub(_unless_secret, url).rstrip("?&"))


def names_no_file(url: str) -> bool:
    """Whether an SQLite URL lacks an absolute path: nothing would be kept, or it would depend on
    where a node is started."""
    return url.startswith(SQLITE) and not url.startswith(f"{SQLITE}/")


def _unless_secret(parameter: re.Match[str]) -> str:
    name = ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), parameter[1]).lower()
    return "" if any(word in name for word in SECRET_WORDS) else parameter[0]
