"""TLS and SASL of source and sink: the client's properties with Spark's prefix `kafka.`.

What: `security_of_options` reads them as every client here does (client/security.py). Rule kept: a
secret is in no plan, since Spark shows none of an option whose name or value has the word password
(`spark.redaction.regex`); a private key as text has no such word, so it is refused. What tasks get
has no repr of a secret. Why so: decision 91.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.client import security
from anabranch.client.security import Security, is_about_security, security_of
from anabranch.core.errors import ClientFault
from anabranch.pipelines.faults import OptionError

PREFIX = "kafka."
KEY_AS_TEXT = "ssl.keystore.key"
EFFECTIVE = tuple(each for each in security.EFFECTIVE if each != KEY_AS_TEXT)
"""Properties that do something."""
WITHOUT_EFFECT = security.JAVAS
REFUSED = {
    **security.REFUSED,
    KEY_AS_TEXT: "Spark shows it in plans: put key and chain into a PEM file that only the job "
    "reads, and name it in kafka.ssl.keystore.location",
}  # fmt: skip
"""Property -> what to do instead."""
REFUSED_PREFIXES = security.REFUSED_PREFIXES


def is_security_option(name: str) -> bool:
    """Whether an option, in lower case, is read here."""
    return name.startswith(PREFIX) and is_about_security(name.removeprefix(PREFIX))


def security_of_options(options: Mapping[str, str]) -> Security:
    """How brokers are spoken to; names are in lower case. Raises OptionError, which repeats no
    value."""
    if PREFIX + KEY_AS_TEXT in options:
        raise OptionError(f"{PREFIX}{KEY_AS_TEXT} is not supported. {REFUSED[KEY_AS_TEXT]}.")
    given = {
        name.removeprefix(PREFIX): text
        for name, text in options.items()
        if is_security_option(name)
    }
    try:
        return security_of(given, PREFIX)
    except ClientFault as fault:
        raise OptionError(fault.message) from None
