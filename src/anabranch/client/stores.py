"""Keys and certificates for TLS: PEM files and texts, and PKCS12 files.

    ssl.truststore.*   the certificates that a broker's must come from
    ssl.keystore.*     the client's own key and its chain, for brokers that ask for it

PKCS12 needs the package `cryptography`; it is imported where such a store is used. JKS, Java's own
format, is refused with the command that converts it. Rule kept: errors name the property and the
file, and never a password; a key that OpenSSL wants as a file lies in memory, or in a file that
only this user reads, and is gone when the context has it.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

JKS_MAGIC = b"\xfe\xed\xfe\xed"
PEM_BEGIN = b"-----BEGIN"


class StoreFault(Exception):
    """A store that cannot be used: the text names the property and the remedy."""


class _Store(NamedTuple):
    """What is in a keystore, as PEM."""

    key: bytes
    chain: bytes
    key_password: str | None


def add_trusted(context: ssl.SSLContext, tls: Mapping[str, str]) -> bool:
    """Trust the certificates of the truststore; whether there is one. Raises StoreFault."""
    name = "ssl.truststore.certificates"
    text = tls.get(name, "").encode()
    if not text:
        name = "ssl.truststore.location"
        if not tls.get(name):
            return False
        text = _bytes_of(tls, name)
        if PEM_BEGIN not in text:
            text = _pkcs12(text, tls, "ssl.truststore").chain
    if not text:
        raise StoreFault(f"{name} has no certificate: give it that of the brokers' authority.")
    try:
        context.load_verify_locations(cadata=text.decode())
    except (ssl.SSLError, ValueError, TypeError):
        raise StoreFault(f"{name} has no certificates that can be read: give it PEM.") from None
    return True


def add_key(context: ssl.SSLContext, tls: Mapping[str, str]) -> None:
    """Use the keystore's key, if there is one. Raises StoreFault."""
    store, name = _key_store(tls)
    if store is None:
        return
    try:
        with _file(store.chain) as chain, _file(store.key) as key:
            context.load_cert_chain(chain, key, store.key_password or "")
    except (ssl.SSLError, ValueError, OSError):
        raise StoreFault(
            f"{name} has no private key with its certificate that can be read: check its content "
            "and ssl.key.password."
        ) from None


def _key_store(tls: Mapping[str, str]) -> tuple[_Store | None, str]:
    name, password = "ssl.keystore.key", tls.get("ssl.key.password")
    if tls.get(name):
        chain = tls.get("ssl.keystore.certificate.chain", "")
        return _Store(tls[name].encode(), chain.encode(), password), name
    name = "ssl.keystore.location"
    if not tls.get(name):
        return None, name
    content = _bytes_of(tls, name)
    if PEM_BEGIN in content:
        return _Store(content, content, password), name
    return _pkcs12(content, tls, "ssl.keystore"), name


def _bytes_of(tls: Mapping[str, str], name: str) -> bytes:
    path = tls[name]
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as problem:
        raise StoreFault(f"{name}: {path} cannot be read: {problem.strerror}.") from None
    except ValueError:
        raise StoreFault(f"{name}: {path!r} is no path of a file.") from None
    if content.startswith(JKS_MAGIC):
        raise StoreFault(
            f"{name}: {path} is a JKS file, which only Java reads. Convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"
        )
    return content


def _pkcs12(content: bytes, tls: Mapping[str, str], family: str) -> _Store:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise StoreFault(
            f"{family}.location is a PKCS12 file, which needs the package cryptography: install it "
            "(pip install cryptography), or give the store as PEM."
        ) from None
    password, found = tls.get(f"{family}.password", "").encode(), None
    if b"\0" not in password:  # the package would panic
        with suppress(ValueError):
            found = load_pkcs12(content, password)
    if found is None:
        raise StoreFault(
            f"{family}.location is not a PKCS12 or PEM file, or {family}.password is wrong."
        )
    own = [] if found.cert is None else [found.cert]
    certificates = [each.certificate for each in (*own, *found.additional_certs)]
    chain = [each.public_bytes(Encoding.PEM) for each in certificates]
    key = b""
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _Store(key, b"".join(chain), None)


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, for as long as the block runs."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("anabranch-key")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by this user alone
        file.write(content)
        file.flush()
        yield file.name
