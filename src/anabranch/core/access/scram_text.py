"""Users of a new cluster as `--add-scram` of Kafka's format tool names them (KIP-900).

    SCRAM-SHA-256=[name="alice",password="…"]                            iterations: 4096, salt:
    drawn SCRAM-SHA-512=[name=bob,iterations=8192,salt="BASE64",saltedpassword="BASE64"]

Rule kept: no password is repeated in an error.
"""

from __future__ import annotations

import base64
import re

from anabranch.core.access.principal import LARGEST_USER_BYTES
from anabranch.core.access.scram_server import CODES, ITERATIONS, make_credential, salted
from anabranch.core.wire.metadata_records import UserScramCredentialRecord

_USER = re.compile(r"\s*(SCRAM-SHA-(?:256|512))=\[(.*)\]\s*", re.DOTALL)
_PART = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^",\]]*))\s*(?:,|$)')
PARTS = ("name", "iterations", "salt", "password", "saltedpassword")
FORM = 'SCRAM-SHA-256=[name="alice",password="…"]'


class ScramTextFault(ValueError):
    """A user that cannot be read; the sentence has no password."""


def read_user(text: str, salt: bytes) -> UserScramCredentialRecord:
    """The credential of a user; `salt` is for a text without one. Raises ScramTextFault."""
    found = _USER.fullmatch(text)
    if found is None:
        raise ScramTextFault(f"a user cannot be read; write {FORM}")
    mechanism, parts = found[1], _parts(found[2])
    if not parts.get("name"):
        raise ScramTextFault(f"a user has no name; write {FORM}")
    name = parts["name"]
    if len(name.encode()) > LARGEST_USER_BYTES:
        raise ScramTextFault(f"a user's name has more than {LARGEST_USER_BYTES} bytes")
    if ("password" in parts) == ("saltedpassword" in parts):
        raise ScramTextFault(f"user {name} needs either password or saltedpassword")
    if "saltedpassword" in parts and "salt" not in parts:
        raise ScramTextFault(f"user {name} has a saltedpassword without its salt")
    iterations = _iterations(name, parts.get("iterations", str(ITERATIONS[0])))
    salt = _decoded(name, parts["salt"]) if "salt" in parts else salt
    if "password" in parts:
        kept = salted(mechanism, parts["password"], salt, iterations)
    else:
        kept = _decoded(name, parts["saltedpassword"])
    made = make_credential(mechanism, kept, salt, iterations)
    return UserScramCredentialRecord(
        name=name, mechanism=CODES[mechanism], salt=made.salt, stored_key=made.stored_key,
        server_key=made.server_key, iterations=iterations,
    )  # fmt: skip


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or found[1] not in PARTS or found[1] in parts:
            raise ScramTextFault(f"a user cannot be read; write {FORM}")
        parts[found[1]] = found[3] if found[2] is None else found[2]
        at = found.end()
    return parts


def _iterations(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) not in ITERATIONS:
        raise ScramTextFault(
            f"user {name}: iterations lie between {ITERATIONS[0]} and {ITERATIONS[-1]}"
        )
    return int(text)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ScramTextFault(f"user {name}: salt and saltedpassword are Base64") from None
