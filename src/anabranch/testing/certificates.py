"""Certificates for tests: an authority of their own, and what it signs.

What: `Authority` signs keys of nodes and clients, as PEM files that every client library reads.
Rule kept: they are for tests on one machine: keys are not protected, and nothing is revoked. Needs
the package `cryptography`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
VALID = 30 * DAY
LOCAL = ("127.0.0.1", "localhost")


class Identity(NamedTuple):
    """Files of one key: `both` has the key and its chain, as keystores of PEM have."""

    key: str
    chain: str
    both: str


class Authority:
    """Signs keys; its own certificate is in the file `certificate`."""

    def __init__(self, folder: str | os.PathLike[str], name: str = "Test authority") -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = (
            self._builder(self._name, self._key.public_key(), VALID)
            .add_extension(constraint, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._pem = self._certificate.public_bytes(Encoding.PEM)
        self.certificate = self._write(f"{_file_name(name)}.ca.pem", self._pem)

    def issue(
        self, name: str, hosts: Sequence[str] = LOCAL, *, valid: timedelta = VALID, unit: str = ""
    ) -> Identity:
        """A key and its certificate, for a name (CN, and OU=`unit`) and hosts. One that is `valid`
        for less than no time has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if unit:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        builder = self._builder(x509.Name(parts), key.public_key(), valid)
        if hosts:
            names = x509.SubjectAlternativeName([_general(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        stem, chain = _file_name(name), signed + self._pem
        return Identity(
            self._write(f"{stem}.key", secret),
            self._write(f"{stem}.crt", chain),
            self._write(f"{stem}.pem", secret + chain),
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + valid)
        )

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return str(path)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _file_name(name: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in name)
