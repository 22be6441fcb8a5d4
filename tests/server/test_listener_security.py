"""Keys of a listener that change in two ways at once: their files, and the settings that name them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import Listener
from anabranch.server import listener_security
from anabranch.server.listener_security import ListenerSecurity
from anabranch.testing.certificates import Authority

LISTENER = Listener("L", "127.0.0.1", 0, "SSL")
KEYS, TRUST = "ssl.keystore.location", "ssl.truststore.certificates"


@pytest.mark.parametrize("is_broken", [False, True])
def test_files_that_are_read_while_settings_change_are_not_those_of_the_new_ones(
    tmp_path, monkeypatch, is_broken
):
    """A thread reads them, and the loop goes over to other settings: whichever ends later, what is
    shown and who is trusted are those of the settings, and it is not held to be kept back."""
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", "New authority")
    both = Path(authority.issue("node").both)
    file = BrokerConfig.of({
        KEYS: str(both), TRUST: Path(authority.certificate).read_text(),
        "ssl.client.auth": "required",
    })  # fmt: skip
    changed = {f"listener.name.l.{TRUST}": Path(other.certificate).read_text()}
    security = ListenerSecurity(ListenerSettings(file, LISTENER))
    read, taken = listener_security._context, []

    def read_slowly(settings):
        if not taken:
            taken.append(True)
            try:
                return read(settings)
            finally:
                if is_broken:
                    both.write_bytes(whole)
                security.take(security.settings.under(file.with_dynamic(changed, {})))
        return read(settings)

    whole = both.read_bytes()
    both.write_bytes(b"broken" if is_broken else whole)
    os.utime(both, ns=(1, 1))
    monkeypatch.setattr(listener_security, "_context", read_slowly)
    assert security.has_changed
    security.reload()
    assert taken and trusted(security) == ["New authority"]
    assert not security.is_kept_back and not security.has_changed


def trusted(security):
    """Whose certificates clients may show."""
    found = security.context().get_ca_certs()
    return [dict(each[0] for each in ca["subject"])["commonName"] for ca in found]
