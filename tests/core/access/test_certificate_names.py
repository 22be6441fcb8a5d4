"""Subjects of certificates as Java writes them, and the rules that shorten them."""

from __future__ import annotations

import pytest

from anabranch.core.access.certificate_names import MappingRules, RuleFault, distinguished_name


def test_the_subject_is_written_as_java_does():
    subject = (
        (("countryName", "US"),), (("organizationName", "A, B+C"),),
        (("organizationalUnitName", "x"), ("userId", "u1")), (("commonName", "#alice "),),
    )  # fmt: skip
    assert distinguished_name(subject) == "CN=\\#alice\\ ,OU=x+UID=u1,O=A\\, B\\+C,C=US"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a=b", r"a\=b"), ("a#b", r"a\#b"), ("  x  ", r"\ \ x\ \ "), (" ", r"\ "), ("a  b", "a  b"),
        ('a"b\\c<d>e;f,g+h', r'a\"b\\c\<d\>e\;f\,g\+h'), ("a,OU=b", r"a\,OU\=b"),
        ("a\0b", r"a\00b"), ("a\nb", "a\nb"), ("pässwörd/日", "pässwörd/日"),
    ],
)  # fmt: skip
def test_a_part_is_escaped_as_java_does(text, written):
    """What `X500Principal.getName` of Java 17 writes of such a certificate."""
    assert distinguished_name(((("commonName", text),),)) == f"CN={written}"


def test_an_address_is_written_in_hex():
    subject = ((("emailAddress", "a@b"),),)
    assert distinguished_name(subject) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=kafka,O=x", "CN=kafka,O=x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka1,OU=ServiceUsers,O=X", "kafka1"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", "CN=Admin,OU=Ops,O=X", "admin@ops"),
        ("RULE:^CN=(.*?)$/$1/U, DEFAULT", "CN=abc", "ABC"),
        ("RULE:^CN=x$/no/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT", "O=1,CN=Ab.c", "ab.c"),
        ("RULE:^CN=([a-z]{1,3}),O=a\\/b$/$1\\$/,DEFAULT", "CN=xyz,O=a/b", "xyz$"),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_names_the_principal(rules, subject, name):
    assert MappingRules(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ("RULE:^CN=x$/x/", "CN=y"),
        (r"RULE:^CN=(\w+)$/$1/", "CN=é"),
        (r"RULE:^CN=(\d+)$/$1/", "CN=١٢"),
    ],
)
def test_a_subject_that_no_rule_fits_has_no_name(rules, subject):
    with pytest.raises(RuleFault, match="no rule"):
        MappingRules(rules).name_of(subject)


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:x", "RULE:^(a$/b/", "RULE:a/$1/", "RULE:a/b/X", "default", "DEFAULT,;", "RULE:a/b/L U",
        "RULE:^CN=([a-z&&[^b]]+)$/$1/", "RULE:^CN=([[a]b]+)$/$1/",
    ],
)  # fmt: skip
def test_rules_that_cannot_be_read_are_refused(rules):
    with pytest.raises(RuleFault):
        MappingRules(rules)
