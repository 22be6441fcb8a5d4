"""Whether somebody is there, asked of the machine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from node_kit import free_port
from tests.core.controller.world import World

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.controller.brokers.hints import MOST_HINTS, Answer
from anabranch.core.request import Request
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import Listener
from anabranch.server.clocks import steady_ms
from anabranch.server.liveness_probe import dial
from anabranch.server.roles import ControllerSide


async def test_who_listens_and_holds_the_connection_is_there() -> None:
    server = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await dial("127.0.0.1", port) is Answer.SAME
    server.close()


async def test_nobody_listens() -> None:
    assert await dial("127.0.0.1", free_port()) is Answer.REFUSED


async def test_a_name_that_no_host_can_have_says_nothing() -> None:
    """A broker may have registered it: the probes of others go on."""
    assert await dial("a..b", free_port()) is Answer.SILENCE


async def test_a_listener_that_dies_after_its_connections_is_found_gone() -> None:
    dialled = []

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(True)
        writer.transport.abort()
        server.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await dial("127.0.0.1", port) is Answer.REFUSED
    assert dialled


async def test_an_address_for_clients_that_refuses_here_fences_no_broker() -> None:
    """Connections to the controller break again and again; each broker listens for its peers."""
    world = World()
    controller = world.controller
    controller.inter_broker_listener = "INTERNAL"
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    server = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    own = Listener(name="INTERNAL", host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    others = [
        Listener(name=name, host="127.0.0.1", port=free_port())
        for name in ("CLIENTS", "EXTERNAL", "PLAINTEXT")
    ]
    for broker_id in (1, 2, 3):
        world.register(broker_id, listeners=[*others[:broker_id], own, *others[broker_id:]])
        world.beat(broker_id)
    for _ in range(MOST_HINTS):
        for broker in world.image.brokers.values():
            controller.connection_closed(broker.broker_id, broker.epoch, steady_ms())
        probes = controller.take_probes()
        assert len(probes) == 3
        for probe in probes:
            answer = await dial(probe.endpoint.host, probe.endpoint.port)
            assert controller.probed(probe, answer, steady_ms()) is None
    assert not any(broker.fenced for broker in world.image.brokers.values())
    server.close()


def test_an_older_connection_that_ends_says_nothing_of_a_broker() -> None:
    world, closed = World(), []
    world.register(1)
    epoch = world.image.brokers[1].epoch
    side = ControllerSide()
    side.shell = SimpleNamespace(  # type: ignore[assignment]
        connection_closed=lambda *broker: closed.append(broker)
    )
    heartbeat = side.hearing(handlers())
    for connection_id in (7, 8):
        body = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=epoch, current_metadata_offset=world.image.offset
        )
        request = Request(63, 1, 1, "b", body, ANONYMOUS, "CONTROLLER", "h", connection_id)
        heartbeat(world.controller, request, world.now_ms)
    side.left(7)
    assert closed == []
    side.left(8)
    assert closed == [(1, epoch)]
    side.left(8)
    assert closed == [(1, epoch)]
