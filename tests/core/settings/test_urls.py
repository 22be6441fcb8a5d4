"""A URL that is shown has no secret in it, and still says where the store is."""

from __future__ import annotations

import pytest

from anabranch.core.settings.urls import without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:geheim@db:5432/a", "postgresql://me@db:5432/a"),
        ("postgresql://me:geheim@/a?host=/run", "postgresql://me@/a?host=/run"),
        ("postgresql://:geheim@db/a", "postgresql://@db/a"),
        ("postgresql://me:ge@heim@db/a", "postgresql://me@db/a"),
        ("postgresql://me:ge/heim@db/a", "postgresql://me@db/a"),
        ("postgresql://me:ge?heim@db/a", "postgresql://me@db/a"),
        ("postgresql://db/a?user=me&password=geheim", "postgresql://db/a?user=me"),
        ("postgresql://db/a?password=geheim&user=me", "postgresql://db/a?user=me"),
        ("postgresql://db/a?p%61ssword=geheim", "postgresql://db/a"),
        ("postgresql://db/a?password=geh@eim&sslpassword=geheim", "postgresql://db/a"),
        ("postgresql://me:geheim@db/a?password=geh@eim", "postgresql://me@db/a"),
        ("postgresql://db/a?oauth_client_secret=geheim&x=1", "postgresql://db/a?x=1"),
    ],
)
def test_secrets_are_left_out(url, shown):
    assert without_secrets(url) == shown


@pytest.mark.parametrize(
    "url", ["sqlite:///srv/a@b/metadata.db", "postgresql://me@[::1]:5432/a?sslmode=require", "/a:b"]
)
def test_the_rest_stays(url):
    assert without_secrets(url) == url
