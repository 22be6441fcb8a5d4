"""The shell around asks: one connection a broker and lane, each ask ends once, and nothing outlives
stop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from anabranch.client.connection import Connection, ConnectionLost
from anabranch.core.broker.peers import JOINS, MARKERS, Peers
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.peers import PeerConnections, PeerShell

NEWEST = 7


class Dialled:
    """Connections that answer what the test says, when it says so."""

    def __init__(self, monkeypatch):
        self.gate = asyncio.Event()
        self.gate.set()
        self.made = []
        self.posts = []
        monkeypatch.setattr(Connection, "open", self.open)

    async def open(self, host, port, **_more):
        await self.gate.wait()
        if host == "nobody":
            raise ConnectionLost("nothing listens there")
        made = SimpleNamespace(is_open=True, port=port, aborted=False, waiting=[])
        made.version_for = lambda _key: NEWEST
        made.post = lambda message, version, answered, timeout_seconds: (
            self.posts.append((port, message, version)),
            made.waiting.append(answered),
        )

        def abort():
            made.aborted, made.is_open = True, False
            for answered in made.waiting:
                answered(ConnectionLost("closed"))

        made.abort = abort
        self.made.append(made)
        return made


def world(hosts):
    brokers = {
        index: SimpleNamespace(
            endpoint=lambda _listener, at=(host, 9000 + index): SimpleNamespace(
                host=at[0], port=at[1]
            )
        )
        for index, host in enumerate(hosts, 1)
    }
    broker = SimpleNamespace(
        broker_id=0, config=BrokerConfig.of({}),
        image=SimpleNamespace(brokers=brokers), peers=Peers(),
    )  # fmt: skip
    steps = []
    connections = PeerConnections(broker, "PLAINTEXT")
    shell = PeerShell(
        broker, connections, lambda: steps.append("begin"), lambda: steps.append("settle")
    )
    return broker.peers, shell, connections, steps


class Message(SimpleNamespace):
    api_key = 0


def message(name):
    return Message(name=name)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_asks_of_a_lane_share_one_connection_and_keep_their_order(monkeypatch):
    dialled = Dialled(monkeypatch)
    dialled.gate.clear()
    peers, shell, connections, steps = world(["a", "b"])
    told = []
    asked = [message(name) for name in ("one", "two", "three")]
    for each, at in zip(asked, (1, 1, 2), strict=True):
        peers.ask(at, MARKERS, each, told.append, most_version=5)
    shell.perform()
    await asyncio.sleep(0)
    dialled.gate.set()
    await until(lambda: len(dialled.posts) == 3)
    assert dialled.posts == [(9001, asked[0], 5), (9001, asked[1], 5), (9002, asked[2], 5)]
    assert len(dialled.made) == 2
    dialled.made[0].waiting.pop(0)("answer")
    assert (told, steps) == (["answer"], ["begin", "settle"])
    await connections.stop()


async def test_a_lane_whose_answers_wait_holds_up_no_other(monkeypatch):
    """A connection gives its answers in order: a marker must not wait behind a join."""
    dialled = Dialled(monkeypatch)
    peers, shell, connections, _steps = world(["a"])
    told = []
    for lane in (JOINS, MARKERS):
        peers.ask(1, lane, message(lane), told.append)
    shell.perform()
    await until(lambda: len(dialled.posts) == 2)
    assert [len(each.waiting) for each in dialled.made] == [1, 1]
    await connections.stop()


@pytest.mark.parametrize("broker_id", [1, 9])
async def test_a_broker_that_cannot_be_reached_is_an_answer_too(monkeypatch, broker_id):
    Dialled(monkeypatch)
    peers, shell, connections, _steps = world(["nobody"])
    told = []
    peers.ask(broker_id, MARKERS, message("lost"), told.append)
    shell.perform()
    await until(lambda: told)
    assert told == [None]
    assert peers.under_way == 0
    await connections.stop()


async def test_nothing_is_told_and_nothing_stays_open_after_the_stop(monkeypatch):
    dialled = Dialled(monkeypatch)
    peers, shell, connections, steps = world(["a", "b"])
    told = []
    peers.ask(1, MARKERS, message("waits for an answer"), told.append)
    shell.perform()
    await until(lambda: dialled.posts)
    dialled.gate.clear()
    peers.ask(2, MARKERS, message("waits for a dial"), told.append)
    shell.perform()
    await asyncio.sleep(0)
    shell.stop()
    await connections.stop()
    assert dialled.made[0].aborted
    assert (told, steps) == ([], [])
    peers.ask(1, MARKERS, message("too late"), told.append)
    shell.perform()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
