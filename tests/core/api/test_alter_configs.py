"""A broker refuses settings of its own that it cannot go over to while it runs, as Kafka's does."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.core.api.in_memory_node import Denying, InMemoryNode
from tests.core.controller.world import World

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import BrokerImage, ControllerImage, Endpoint
from anabranch.core.outcome import Forward
from anabranch.core.request import Request
from anabranch.core.wire.messages.alter_configs import AlterableConfig as Wanted
from anabranch.core.wire.messages.alter_configs import AlterConfigsRequest
from anabranch.core.wire.messages.alter_configs import AlterConfigsResource as Whole
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER = 2, 4
ALL, OWN, OTHER = "", "1", "2"
SET, DELETE = 0, 1
THREADS, PER_IP = "log.cleaner.threads", "max.connections.per.ip"
OVERRIDES = f"{PER_IP}.overrides"
PER_IP_ALONE = f"requirement failed: {PER_IP} can be 0 only if {OVERRIDES} names who may connect"
TOO_SMALL = (
    "requirement failed: log.cleaner.dedupe.buffer.size must be more than 1 MiB for each of "
    f"{THREADS}"
)
TO_HALF = "Log cleaner threads cannot be reduced to less than half the current value"
TO_DOUBLE = "Log cleaner threads cannot be increased to more than double the current value"


def node_with(config=None, *, own=None, default=None):
    """A broker with settings in its file, of its own, and of all."""
    node = InMemoryNode(config=config)
    dynamic = {(BROKER, OWN): Map(own or {}), (BROKER, ALL): Map(default or {})}
    node.broker.image = replace(node.broker.image, configs=Map(dynamic))
    node.broker.config = node.broker.config.with_dynamic(own or {}, default or {})
    return node


def change(name, *operations, kind=BROKER):
    """A resource of IncrementalAlterConfigs: (setting, value) pairs, None takes one away."""
    configs = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in operations
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def told(node, *resources):
    """Codes and sentences, None for what is forwarded to the controller."""
    outcome = node.send(IncrementalAlterConfigsRequest(resources=list(resources)), 1)
    if isinstance(outcome, Forward):
        return None
    return [(each.error_code, each.error_message) for each in outcome.responses]


def refused(sentence):
    return [(ErrorCode.INVALID_REQUEST, sentence)]


@pytest.mark.parametrize("name", [ALL, OWN, "+1", "01"])
@pytest.mark.parametrize(
    ("node", "setting", "value", "sentence"),
    [
        ({}, PER_IP, "0", PER_IP_ALONE),
        ({}, PER_IP, "1", None),
        ({OVERRIDES: "10.0.0.1:5"}, PER_IP, "0", None),
        ({}, THREADS, "2", None),
        ({}, THREADS, "3", f"{TO_DOUBLE} 1"),
        ({THREADS: "9"}, THREADS, "18", None),
        ({THREADS: "9"}, THREADS, "4", None),
        ({THREADS: "9"}, THREADS, "3", f"{TO_HALF} 9"),
        ({THREADS: "100"}, THREADS, "128", TOO_SMALL),
        ({THREADS: "2"}, "log.cleaner.dedupe.buffer.size", str((2 << 20) + 1), TOO_SMALL),
    ],
)
def test_it_judges_by_its_own_file(name, node, setting, value, sentence):
    answer = told(node_with(node), change(name, (setting, value)))
    assert answer == (None if sentence is None else refused(sentence))


def test_what_is_taken_away_is_judged_too():
    node = node_with(own={PER_IP: "0", THREADS: "4"}, default={OVERRIDES: "10.0.0.1:5"})
    assert told(node, change(ALL, (OVERRIDES, None))) == refused(PER_IP_ALONE)
    assert told(node, change(OWN, (PER_IP, None))) is None
    assert told(node, change(OWN, (THREADS, None))) == refused(f"{TO_HALF} 4")


@pytest.mark.parametrize("name", [OWN, "+1", "01"])
def test_what_is_taken_away_of_its_own_is_judged_however_its_id_is_written(name):
    node = node_with(own={THREADS: "4"})
    assert told(node, change(name, (THREADS, None))) == refused(f"{TO_HALF} 4")


def test_its_own_settings_stand_over_those_of_all():
    node = node_with(own={THREADS: "2", OVERRIDES: "10.0.0.1:5"})
    assert told(node, change(ALL, (THREADS, "50"))) is None
    assert told(node, change(ALL, (PER_IP, "0"))) is None


def test_nothing_else_of_the_request_is_changed():
    resources = change("t", ("retention.ms", "5"), kind=TOPIC), change(OWN, (THREADS, "3"))
    (topic, broker) = told(node_with(), *resources)
    assert broker == (ErrorCode.INVALID_REQUEST, f"{TO_DOUBLE} 1")
    assert topic[0] == ErrorCode.INVALID_REQUEST
    assert "Send this one again" in topic[1]


@pytest.mark.parametrize(
    "resource",
    [
        change(OTHER, (THREADS, "3")),
        change("t", (PER_IP, "0"), kind=TOPIC),
        change(OWN, (THREADS, "0")),
        change(OWN, (THREADS, "x")),
        change(OWN, (THREADS, "3"), (THREADS, "3")),
        AlterConfigsResource(
            resource_type=BROKER,
            resource_name=OWN,
            configs=[AlterableConfig(name=THREADS, config_operation=9, value="3")],
        ),
    ],
)
def test_the_controller_judges_what_it_can(resource):
    assert told(node_with(), resource) is None


def test_who_may_not_change_them_is_refused_by_the_controller():
    node = node_with()
    node.broker.authorizer = Denying((Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None))
    assert told(node, change(OWN, (THREADS, "3"))) is None


def test_a_whole_set_is_judged_alike():
    node = node_with(own={THREADS: "4"})
    request = AlterConfigsRequest(
        resources=[
            Whole(
                resource_type=BROKER,
                resource_name=OWN,
                configs=[Wanted(name="message.max.bytes", value="9")],
            )
        ]
    )
    (answer,) = node.send(request, 2).responses
    assert (answer.error_code, answer.error_message) == refused(f"{TO_HALF} 4")[0]
    request.resources[0].configs.append(Wanted(name=THREADS, value="8"))
    assert isinstance(node.send(request, 2), Forward)


def test_its_listeners_judge_their_new_settings():
    """What is to be in force is asked for, and nothing is forwarded that a listener refuses."""
    key, asked = "listener.name.l.ssl.keystore.location", []
    node = node_with()

    def refuse(config):
        asked.append(config.dynamic_broker.get(key))
        if asked[-1] == "bad":
            raise ClientFault(ErrorCode.INVALID_REQUEST, "it has no key")

    node.broker.refuse_listeners = refuse
    assert told(node, change(OWN, (key, "bad"))) == [(ErrorCode.INVALID_REQUEST, "it has no key")]
    assert told(node, change(OWN, (key, "good"))) is None
    assert told(node, change(OTHER, (key, "bad"))) is None
    assert asked == ["bad", "good"]


KEYS, TYPO = "listener.name.l.ssl.keystore.location", "listener.name.ll.ssl.keystore.location"


@pytest.mark.parametrize(
    ("fenced", "name", "answer"),
    [
        (False, KEYS, "Unexpected broker id, expected 1, but received 2"), (True, KEYS, None),
        (True, TYPO, "the node has no listener ll"), (False, PER_IP, None),
        (None, KEYS.replace(".l.", ".c."), None), (None, KEYS, "the node has no listener l"),
    ],
)  # fmt: skip
def test_keys_of_another_broker_are_its_own_to_judge_while_it_is_there(fenced, name, answer):
    node = node_with()
    brokers = node.broker.image.brokers
    controllers = Map({2: ControllerImage(2, bytes(16), Map({"C": Endpoint("c", 1)}))})
    if fenced is not None:
        other = BrokerImage(2, 5, bytes(16), Map({"L": Endpoint("b", 1)}), fenced=fenced)
        brokers = brokers.set(2, other)
    node.broker.image = replace(node.broker.image, brokers=brokers, controllers=controllers)
    found = told(node, change(OTHER, (name, "1")))
    if answer is None:
        assert found is None
    else:
        assert found is not None
        ((code, sentence),) = found
        assert code == ErrorCode.INVALID_REQUEST and answer in sentence


@pytest.mark.parametrize(
    ("node_id", "listener", "name", "is_taken"),
    [
        (1, "CONTROLLER", KEYS, True), (1, "CONTROLLER", TYPO, False), (1, "", TYPO, True),
        (2, "CONTROLLER", "listener.name.c.ssl.keystore.location", True),
        (2, "CONTROLLER", "listener.name.l.ssl.keystore.location", False),
        (2, "CONTROLLER", PER_IP, True), (9, "CONTROLLER", KEYS, False),
    ],
)  # fmt: skip
def test_a_controller_that_is_asked_itself_refuses_listeners_that_are_not_there(
    node_id, listener, name, is_taken
):
    """What a broker passes on it has judged; what is stored already may stay and be taken away."""
    world = World()
    broker = BrokerImage(1, 5, bytes(16), Map({"L": Endpoint("b", 1)}), fenced=False)
    controller = ControllerImage(2, bytes(16), Map({"C": Endpoint("c", 1)}))
    image = replace(
        world.image, brokers=Map({1: broker}), controllers=Map({2: controller}),
        configs=world.image.configs.set((BROKER, str(node_id)), Map({TYPO + ".x": "old"})),
    )  # fmt: skip
    world.controller.state.image = image
    world.controller.node_id = 7
    body = IncrementalAlterConfigsRequest(resources=[change(str(node_id), (name, "5"))])
    request = Request(44, 1, 1, "test", body, ANONYMOUS, listener, "127.0.0.1", 1)
    outcome = handlers()[44].controller(world.controller, request, 0)
    (answer,) = outcome.result.response.responses
    assert (answer.error_code == 0) is is_taken, answer
    assert bool(outcome.result.records) is is_taken


@pytest.mark.parametrize("listener", ["C", ""])
def test_a_controller_judges_its_own_keys(listener):
    world, asked = World(), []

    def refuse(config):
        asked.append(config.dynamic_broker)
        raise ClientFault(ErrorCode.INVALID_REQUEST, "it has no key")

    own = world.controller.node_id
    controller = ControllerImage(own, bytes(16), Map({"C": Endpoint("c", 1)}))
    world.controller.state.image = replace(world.image, controllers=Map({own: controller}))
    world.controller.refuse_listeners = refuse
    name = "listener.name.c.ssl.keystore.location"
    body = IncrementalAlterConfigsRequest(resources=[change(str(own), (name, "bad"))])
    request = Request(44, 1, 1, "test", body, ANONYMOUS, listener, "127.0.0.1", 1)
    (answer,) = handlers()[44].controller(world.controller, request, 0).result.response.responses
    assert answer.error_message == "it has no key" and asked == [{name: "bad"}]


@pytest.mark.parametrize("written", ["+1", "01", "0000000001"])
def test_a_broker_knows_its_own_id_however_it_is_written(written):
    """The controller takes each of them for the same broker, and stores what it is given."""
    node = node_with(own={THREADS: "4"})
    node.broker.refuse_listeners = refuse_bad
    assert told(node, change(written, (THREADS, "9"))) == refused(f"{TO_DOUBLE} 4")
    assert told(node, change(written, (THREADS, None))) == refused(f"{TO_HALF} 4")
    assert told(node, change(written, (KEYS, "bad"))) == refused("it has no key")
    assert told(node, change(written, (KEYS, "good"))) is None


@pytest.mark.parametrize("written", ["+2", "02"])
def test_another_broker_is_known_however_its_id_is_written(written):
    node = node_with()
    other = BrokerImage(2, 5, bytes(16), Map({"L": Endpoint("b", 1)}), fenced=False)
    image, stored = node.broker.image, Map({(BROKER, OTHER): Map({KEYS: "old"})})
    node.broker.image = replace(image, brokers=image.brokers.set(2, other), configs=stored)
    assert told(node, change(written, (KEYS, "old"), (THREADS, "2"))) is None
    found = told(node, change(written, (KEYS, "new")))
    assert found is not None and "expected 1, but received 2" in found[0][1]


@pytest.mark.parametrize("written", ["9" * 5_000, "\u0663", "\u00b2", "2 ", "-", "1e3"])
def test_what_is_no_id_is_left_to_the_controller(written):
    """However long it is: no text of a client is a fault of the node."""
    assert told(node_with(), change(written, (KEYS, "1"))) is None


@pytest.mark.parametrize("written", ["7", "+7", "07"])
def test_a_controller_judges_all_that_would_be_set(written):
    world, asked = World(), []
    world.controller.node_id, world.controller.refuse_listeners = 7, asked.append
    controller = ControllerImage(7, bytes(16), Map({"C": Endpoint("c", 1)}))
    trust = "listener.name.c.ssl.truststore.location"
    configs = world.image.configs.set((BROKER, "7"), Map({trust: "old"}))
    world.controller.state.image = replace(
        world.image, controllers=Map({7: controller}), configs=configs
    )
    keys = KEYS.replace(".l.", ".c.")
    for wanted in ((keys, "new"), (trust, None)):  # a removal, too: the file's may be gone
        body = IncrementalAlterConfigsRequest(resources=[change(written, wanted)])
        request = Request(44, 1, 1, "test", body, ANONYMOUS, "C", "127.0.0.1", 1)
        assert handlers()[44].controller(world.controller, request, 0).result.records
    assert [each.dynamic_broker for each in asked] == [{trust: "old", keys: "new"}, {}]


def refuse_bad(config):
    if config.dynamic_broker.get(KEYS) == "bad":
        raise ClientFault(ErrorCode.INVALID_REQUEST, "it has no key")


@pytest.mark.parametrize(("name", "is_taken"), [(KEYS, True), (TYPO, False)])
def test_listeners_of_controllers_are_known_where_none_is_registered(name, is_taken):
    """Below the level at which controllers register, all nodes speak to them all the same."""
    config = {"controller.listener.names": "C, L"}
    node, world = node_with(config), World(settings=config)
    other = BrokerImage(2, 5, bytes(16), Map({"B": Endpoint("b", 1)}), fenced=True)
    node.broker.image = replace(node.broker.image, brokers=Map({2: other}), controllers=Map())
    assert (told(node, change(OTHER, (name, "1"))) is None) is is_taken
    world.controller.state.image = replace(world.image, brokers=Map({2: other}))
    body = IncrementalAlterConfigsRequest(resources=[change(OTHER, (name, "1"))])
    request = Request(44, 1, 1, "test", body, ANONYMOUS, "C", "127.0.0.1", 1)
    (answer,) = handlers()[44].controller(world.controller, request, 0).result.response.responses
    assert (answer.error_code == 0) is is_taken, answer
