"""Keys and certificates of TLS: a store that cannot be used is told in a sentence."""

from __future__ import annotations

import ssl

import pytest

from anabranch.client.stores import StoreFault, add_key, add_trusted
from anabranch.testing.certificates import Authority


def pkcs12(folder):
    """A file with a key that needs no password."""
    kinds = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
    from cryptography.x509 import load_pem_x509_certificate

    own = Authority(folder / "tls").issue("node")
    with open(own.key, "rb") as key, open(own.chain, "rb") as chain:
        parts = (
            kinds.load_pem_private_key(key.read(), None), load_pem_x509_certificate(chain.read()),
        )  # fmt: skip
    file = folder / "store.p12"
    file.write_bytes(serialize_key_and_certificates(b"n", *parts, None, kinds.NoEncryption()))
    return str(file)


@pytest.mark.parametrize(
    ("family", "add"), [("ssl.keystore", add_key), ("ssl.truststore", add_trusted)]
)
def test_no_password_of_a_store_stops_a_process(tmp_path, family, add):
    """The package that reads PKCS12 panics at a zero byte: that is no Exception."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = {f"{family}.location": pkcs12(tmp_path), f"{family}.password": "hunter2\0"}
    with pytest.raises(StoreFault, match="password is wrong") as told:
        add(context, tls)
    assert "hunter2" not in str(told.value)
    add(context, {f"{family}.location": tls[f"{family}.location"]})
