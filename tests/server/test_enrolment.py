"""A controller makes itself known over a real connection, and does not contend for its id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_kit import Host, eventually

from anabranch.core.broker.registration import enrolment
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.server.enrolment import Enrolment

NODE = 7


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    started = await Host(tmp_path / "store.db").start()
    yield started
    await started.stop()


def enrolment_of(host: Host, port: int) -> Enrolment:
    return Enrolment(host.channel(), NODE, {"CONTROLLER": ("127.0.0.1", port)}, lambda _why: None)


async def enrolled(host: Host, process: Enrolment) -> None:
    process.follow(host.image)

    def is_known() -> bool:
        known = host.image.controllers.get(NODE)
        return known is not None and known.incarnation_id == process.incarnation_id

    await eventually(is_known)
    process.follow(host.image)


async def test_who_is_started_again_is_known_at_once(host: Host) -> None:
    first, again = enrolment_of(host, 1), enrolment_of(host, 2)
    await enrolled(host, first)
    await first.stop()
    await enrolled(host, again)
    await again.stop()


async def test_two_processes_of_one_id_say_so_and_do_not_replace_each_other_for_ever(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(enrolment, "TWIN_PAUSE_MS", 600_000)
    first, twin = enrolment_of(host, 1), enrolment_of(host, 2)
    await enrolled(host, first)
    await enrolled(host, twin)
    end = host.image.next_offset
    first.follow(host.image)
    await eventually(
        lambda: any("one process for each node.id" in each for each in caplog.messages)
    )
    first.follow(host.image)
    twin.follow(host.image)
    assert host.image.next_offset == end
    assert host.image.controllers[NODE].incarnation_id == twin.incarnation_id
    await first.stop()
    await twin.stop()


async def test_who_was_forgotten_is_known_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was unregistered while it runs: nobody has taken its id."""
    monkeypatch.setattr(enrolment, "TWIN_PAUSE_MS", 600_000)
    process, channel = enrolment_of(host, 1), host.channel()
    await enrolled(host, process)
    await channel.send(UnregisterBrokerRequest(broker_id=NODE))
    assert NODE not in host.image.controllers
    await enrolled(host, process)
    await process.stop()
    await channel.close()
