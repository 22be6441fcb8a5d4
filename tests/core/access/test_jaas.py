"""Logins as Kafka's files have them."""

from __future__ import annotations

import pytest

from anabranch.core.access.jaas import JaasFault, parse_jaas


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        ('a.b.PlainLoginModule required username="x" password="y";', "PlainLoginModule",
         {"username": "x", "password": "y"}),
        ("M required a=b user_x-1.y=2 ;", "M", {"a": "b", "user_x-1.y": "2"}),
        ('M REQUIRED a="semi;colon" b="quo\\"te" c="";', "M",
         {"a": "semi;colon", "b": 'quo"te', "c": ""}),
        ("  M\n required\n a=1;\n", "M", {"a": "1"}),
        ("M required a='it is';", "M", {"a": "it is"}),
        ("M required a='q\"q' b=\"i't\";", "M", {"a": 'q"q', "b": "i't"}),
        ('M required a="1" // b="2"\n c="3";', "M", {"a": "1", "c": "3"}),
        ('M required a="1" /* b="2" \n */ c="/*//"; // end', "M", {"a": "1", "c": "/*//"}),
        ('M required a="1" /*;*/;', "M", {"a": "1"}),
        ('"a.b.M" required a="\\t\\x\\101\\400";', "M", {"a": "\txA 0"}),
        ('M required a="1" a="2";', "M", {"a": "2"}),
    ],
)  # fmt: skip
def test_module_and_options(text, module, options):
    assert parse_jaas(text) == (module, options)


@pytest.mark.parametrize(
    "text",
    [
        "", "M", "M required a=secret", "required;", "M sometimes a=secret;",
        'M required a="secret;', "M required a='secret;", 'M required a="b secret="c";',
        'M required a=="secret";', 'M required a="b" ;c="secret";', 'M required a="b", c="secret";',
        'M required a="b"; N required c="secret";', 'M required a secret="b";',
        "M required a=b secret;", 'M required a="b" /* ; secret', 'M required a="secret\nb";',
        'M required a= ;', "M;", "; required;",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_not_repeated(text):
    with pytest.raises(JaasFault) as fault:
        parse_jaas(text)
    assert "secret" not in str(fault.value)
