"""Users of a new cluster as Kafka's format tool writes them."""

from __future__ import annotations

import base64

import pytest

from anabranch.core.access.scram_server import make_credential, salted
from anabranch.core.access.scram_text import ScramTextFault, read_user

SALT = b"drawn"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "form", ['name="a,b",password="p]=,"', "name=a,password=p,iterations=8192"]
)
def test_a_password_is_salted(mechanism, form):
    record = read_user(f"{mechanism}=[{form}]", SALT)
    password, iterations = ("p]=,", 4096) if '"' in form else ("p", 8192)
    made = make_credential(
        mechanism, salted(mechanism, password, SALT, iterations), SALT, iterations
    )
    assert record.name == ("a,b" if '"' in form else "a")
    assert (record.stored_key, record.server_key) == (made.stored_key, made.server_key)
    assert (record.iterations, record.salt) == (iterations, SALT)


def test_a_salted_password_is_taken_as_it_is():
    salt, password = b"own", salted("SCRAM-SHA-256", "p", b"own", 4096)
    texts = [base64.b64encode(each).decode() for each in (salt, password)]
    text = 'SCRAM-SHA-256=[name=a,salt="{}",saltedpassword="{}"]'.format(*texts)
    assert (
        read_user(text, SALT).stored_key
        == make_credential("SCRAM-SHA-256", password, salt, 4096).stored_key
    )


@pytest.mark.parametrize(
    "text",
    [
        f"SCRAM-SHA-256=[name={'a' * 1025},password=secret]",
        "", "alice:secret", "SCRAM-SHA-1=[name=a,password=secret]", "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[name=a,password=secret,saltedpassword=x]",
        "SCRAM-SHA-256=[name=a,saltedpassword=secret]", "SCRAM-SHA-256=[name=a,name=b,password=secret]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=x]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=99999999999]",
        "SCRAM-SHA-256=[name=a,password=secret,other=1]",
        "SCRAM-SHA-256=[name=a,salt=?,password=secret]",
    ],
)  # fmt: skip
def test_what_is_no_user_is_told_without_its_password(text):
    with pytest.raises(ScramTextFault) as fault:
        read_user(text, SALT)
    assert "secret" not in str(fault.value)
