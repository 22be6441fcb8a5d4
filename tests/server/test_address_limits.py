"""Hosts and addresses with limits of their own: names are looked up, and the loop goes on."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

from server_kit import eventually

from anabranch.server import address_limits, logs
from anabranch.server.address_limits import AddressLimits

ADDRESSES = "10.0.0.1", "10.0.0.2", "10.0.0.3"


async def test_a_host_is_found_in_whatever_case_it_is_written():
    limits = AddressLimits()
    limits.follow("LocalHost:1")
    await eventually(lambda: limits.of("127.0.0.1") == 1)


async def test_an_address_is_known_at_once_in_whatever_form_it_is_written():
    limits = AddressLimits()
    limits.follow("FE80:0:0::1:7,10.0.0.1:5,[::1]:3,LocalHost:1")
    addresses = "fe80::1", "10.0.0.1", "::1", "10.0.0.2"
    assert [limits.of(each) for each in addresses] == [7, 5, 3, None]
    limits.stop()


async def test_what_held_before_holds_until_the_names_are_looked_up(monkeypatch):
    found = asyncio.get_running_loop().create_future()

    async def addresses_of(_host):
        return await found

    monkeypatch.setattr(address_limits, "addresses_of", addresses_of)
    limits = AddressLimits()
    limits.follow("10.0.0.1:5")
    limits.follow("host:7,10.0.0.2:6")
    assert [limits.of(each) for each in ADDRESSES] == [5, 6, None]
    found.set_result(["10.0.0.2", "10.0.0.3"])
    await eventually(lambda: limits.of("10.0.0.3") == 7)
    assert [limits.of(each) for each in ADDRESSES] == [None, 6, 7]


async def test_a_host_without_an_address_is_said_and_the_others_have_their_limits(monkeypatch):
    said = []

    async def addresses_of(host):
        if host == "typo":
            raise OSError("no such host")
        return ["10.0.0.3"]

    monkeypatch.setattr(address_limits, "addresses_of", addresses_of)
    monkeypatch.setattr(logs, "WATCHERS", [lambda record: said.append(record.anabranch_fields)])
    limits = AddressLimits()
    limits.follow("typo:1,host:7")
    await eventually(lambda: limits.of("10.0.0.3") == 7)
    (fields,) = said
    assert fields["host"] == "typo"
    assert "max.connections.per.ip.overrides has no effect for it: no such host" in fields["why"]


async def test_a_host_is_asked_for_again_and_keeps_what_it_had_meanwhile(monkeypatch):
    answers, now_ms = [["10.0.0.1"], OSError("later"), ["10.0.0.2"]], 0

    async def addresses_of(_host):
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    monkeypatch.setattr(address_limits, "addresses_of", addresses_of)
    monkeypatch.setattr(address_limits, "steady_ms", lambda: now_ms)
    limits = AddressLimits()
    limits.follow("host:5")
    await eventually(lambda: limits.of("10.0.0.1") == 5)
    limits.follow("host:6")
    await eventually(lambda: limits.of("10.0.0.1") == 6)
    limits.follow("host:6")
    await asyncio.sleep(0)
    assert len(answers) == 1, "not before its time"
    now_ms = address_limits.RETRY_MS
    limits.follow("host:6")
    await eventually(lambda: limits.of("10.0.0.2") == 6)
    assert limits.of("10.0.0.1") is None


def test_a_stop_waits_for_no_name_service(monkeypatch):
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_named: answered.wait(20) and [])

    async def stopped_meanwhile():
        limits = AddressLimits()
        limits.follow("host:5")
        await asyncio.sleep(0.05)
        limits.stop()

    begun = time.monotonic()
    asyncio.run(stopped_meanwhile())
    assert time.monotonic() - begun < 10
    answered.set()
