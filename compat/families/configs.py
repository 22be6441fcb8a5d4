"""`kafka-configs.sh`: configurations of topics, brokers, groups and client metrics."""

from __future__ import annotations

import re
from typing import Any

from anabranch.core.settings.catalogue import BROKER_SETTINGS
from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import row

ADDRESSES = ("advertised.listeners", "controller.quorum.voters", "listener.security.protocol.map")
CONFIGS = "kafka.admin.ConfigCommand"


def configs(peer: Peer, *words: object, **options: Any) -> Output:
    """kafka-configs.sh with these words."""
    return peer.tool(CONFIGS, *peer.at, *words, **options)


def of(kind: str, name: str | None = None) -> tuple[str, ...]:
    """The words that name an entity; without a name the default of its kind."""
    which = ("--entity-default",) if name is None else ("--entity-name", name)
    return "--entity-type", kind, *which


def dynamic(peer: Peer, *entity: str) -> list[str]:
    """What is set on an entity, as the tool prints it."""
    return configs(peer, *entity, "--describe").lines


def shows(peer: Peer, *entity: str, text: str = "", no_more: str = "") -> list[str]:
    """What is set, once the broker has heard of it: with `text`, and without `no_more`."""

    def heard() -> list[str]:
        lines = dynamic(peer, *entity)
        there = any(text in line for line in lines)
        gone = not no_more or not any(no_more in line for line in lines)
        return lines if there and gone else []

    return peer.wait(heard, f"settings that show {text!r} and not {no_more!r}")


def refused(peer: Peer, *words: object) -> str:
    """The exception's name when kafka-configs.sh refuses; the sentence is noted."""
    output = configs(peer, *words, fails=True)
    lines = [line for line in output.lines + output.err.splitlines() if "xception" in line]
    peer.say(lines[0] if lines else output.complaint)
    names = re.findall(r"(\w+Exception)\b", " ".join(lines))
    return next((name for name in names if name != "ExecutionException"), "")


@row("configs-topic")
def alters_a_topic(peer: Peer) -> object:
    """A topic's configuration is added, described, changed and deleted."""
    create(peer, "configured")
    entity = of("topics", "configured")
    add = "retention.ms=86400000,max.message.bytes=2000000"
    change = "retention.ms=1000000,cleanup.policy=[compact,delete]"
    steps = [
        (("--add-config", add), "retention.ms=86400000", ""),
        (("--add-config", change), "retention.ms=1000000", ""),
        (("--delete-config", "max.message.bytes,retention.ms"), "cleanup", "retention.ms"),
    ]
    seen = []
    for step, text, no_more in steps:
        seen.append(configs(peer, *entity, "--alter", *step).lines)
        seen.append(shows(peer, *entity, text=text, no_more=no_more))
    return seen


@row("configs-topic-from-file")
def alters_a_topic_from_a_file(peer: Peer) -> object:
    """A topic's configuration comes from a file."""
    create(peer, "from-file")
    file = peer.file("topic.properties", "flush.messages=10\nsegment.bytes=2000000\n")
    entity = of("topics", "from-file")
    configs(peer, *entity, "--alter", "--add-config-file", file)
    return shows(peer, *entity, text="segment.bytes=2000000")


@row("configs-topic-all")
def describes_all_of_a_topic(peer: Peer) -> object:
    """Every configuration of a topic is described with its value, type and synonyms."""
    create(peer, "all-configs", retention_ms=1000000)
    entity = of("topics", "all-configs")
    return sorted(configs(peer, *entity, "--describe", "--all").lines)


@row("configs-topic-refused")
def refuses_bad_configurations(peer: Peer) -> object:
    """Unknown names, bad values and unknown topics are refused with the same error."""
    create(peer, "strict")
    bad = ("no.such.setting=1", "retention.ms=soon", "min.insync.replicas=0", "retention.ms=-2")
    strict = of("topics", "strict")
    why = {each: refused(peer, *strict, "--alter", "--add-config", each) for each in bad}
    nobody = of("topics", "nobody")
    why["nobody"] = refused(peer, *nobody, "--alter", "--add-config", "retention.ms=1")
    why["not set"] = refused(peer, *strict, "--alter", "--delete-config", "retention.ms")
    return why, dynamic(peer, *strict)


@row("configs-broker")
def alters_a_broker(peer: Peer) -> object:
    """A broker's dynamic settings are added, described and deleted."""
    entity = of("brokers", "1")
    configs(peer, *entity, "--alter", "--add-config", "log.cleaner.threads=2,message.max.bytes=900")
    during = shows(peer, *entity, text="log.cleaner.threads=2")
    configs(peer, *entity, "--alter", "--delete-config", "log.cleaner.threads,message.max.bytes")
    return during, shows(peer, *entity, no_more="message.max.bytes")


@row("configs-broker-default")
def alters_all_brokers(peer: Peer) -> object:
    """The cluster's default of a dynamic setting is added, seen by the broker, and deleted."""
    entity = of("brokers")
    configs(peer, *entity, "--alter", "--add-config", "message.max.bytes=1500000")
    during = shows(peer, *entity, text="message.max.bytes=1500000")
    seen = configs(peer, *of("brokers", "1"), "--describe", "--all").lines
    configs(peer, *entity, "--alter", "--delete-config", "message.max.bytes")
    after = shows(peer, *entity, no_more="message.max.bytes")
    return during, [line for line in seen if "message.max.bytes" in line], after


@row("configs-broker-all")
def describes_all_of_a_broker(peer: Peer) -> object:
    """Every setting of a broker is described with its value and where it comes from.

    Left out are Anabranch's own, and addresses, which Kafka wants told in more settings.
    """
    left_out = {name for name, each in BROKER_SETTINGS.items() if each.ours} | set(ADDRESSES)
    lines = configs(peer, *of("brokers", "1"), "--describe", "--all").lines
    return sorted(line for line in lines if line.partition("=")[0] not in left_out)


@row("configs-broker-refused")
def refuses_bad_broker_settings(peer: Peer) -> object:
    """Settings that need a restart, bad values and unknown brokers are refused with the same
    error."""
    one, bad = of("brokers", "1"), ("broker.id=7", "log.cleaner.threads=none", "num.io.threads=0")
    why = {each: refused(peer, *one, "--alter", "--add-config", each) for each in bad}
    why["nobody"] = refused(
        peer, *of("brokers", "no"), "--alter", "--add-config", "num.io.threads=9"
    )
    return why


@row("configs-loggers")
def alters_log_levels(peer: Peer) -> object:
    """A broker's log levels are described, changed and reset; bad ones are refused."""
    entity = of("broker-loggers", "1")
    found = configs(peer, *entity, "--describe").lines[1:]
    name = next(line.partition("=")[0] for line in found if not line.startswith("root="))
    shown = {name: "<logger>"}

    def level() -> list[str]:
        lines = configs(peer, *entity, "--describe").lines
        return [line.replace(name, shown[name]) for line in lines if line.startswith(f"{name}=")]

    configs(peer, *entity, "--alter", "--add-config", f"{name}=ERROR")
    during = level()
    why = refused(peer, *entity, "--alter", "--add-config", f"{name}=LOUD")
    unknown = refused(peer, *entity, "--alter", "--add-config", "no.such.logger=DEBUG")
    peer.said = [sentence.replace(name, shown[name]) for sentence in peer.said]
    configs(peer, *entity, "--alter", "--delete-config", name)
    return during, why, unknown, level() != during, any("root=" in line for line in found)


@row("configs-client-metrics")
def alters_client_metrics(peer: Peer) -> object:
    """A subscription to clients' metrics is added, described and deleted."""
    entity = of("client-metrics", "watch")
    wish = "metrics=[org.apache.kafka.producer.],interval.ms=60000"
    configs(peer, *entity, "--alter", "--add-config", wish)
    shows(peer, *entity, text="interval.ms=60000")
    during = configs(peer, *entity, "--describe", "--all").lines
    configs(peer, *entity, "--alter", "--delete-config", "metrics")
    shows(peer, *entity, no_more="kafka.producer")
    less = configs(peer, *entity, "--describe", "--all").lines
    bad = ("no.such=1", "interval.ms=5", "interval.ms=soon", "match=[name=x]")
    why = {each: refused(peer, *entity, "--alter", "--add-config", each) for each in bad}
    configs(peer, *entity, "--alter", "--delete-config", "interval.ms")
    return sorted(during), sorted(less), why, shows(peer, *entity, no_more="interval.ms")


@row("configs-groups")
def alters_a_group(peer: Peer) -> object:
    """A consumer group's configuration is added, described and deleted."""
    entity = of("groups", "configured-group")
    configs(peer, *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    name = "consumer.session.timeout.ms"
    shows(peer, *entity, text=name)
    during = configs(peer, *entity, "--describe", "--all").lines
    bad = ("no.such=1", f"{name}=5", f"{name}=99999999", f"{name}=soon", "share.isolation.level=x")
    why = {each: refused(peer, *entity, "--alter", "--add-config", each) for each in bad}
    configs(peer, *entity, "--alter", "--delete-config", name)
    shows(peer, *entity, no_more=name)
    return sorted(during), why


@row("configs-quotas")
def alters_quotas(peer: Peer) -> object:
    """A client's quota is added, described and deleted."""
    entity = of("clients", "greedy")
    configs(peer, *entity, "--alter", "--add-config", "producer_byte_rate=1024")
    during = shows(peer, *entity, text="producer_byte_rate")
    configs(peer, *entity, "--alter", "--delete-config", "producer_byte_rate")
    set_rate = "producer_byte_rate="
    peer.wait(lambda: not any(set_rate in line for line in dynamic(peer, *entity)), "no quota")
    return during, dynamic(peer, *entity)


QUOTA_ENTITIES = {
    "user": of("users", "alice"),
    "users": of("users"),
    "client": of("clients", "loader"),
    "clients": of("clients"),
    "both": (*of("users", "alice"), *of("clients", "loader")),
    "default of one": (*of("users", "alice"), *of("clients")),
    "defaults": (*of("users"), *of("clients")),
    "ip": of("ips", "127.0.0.9"),
    "ips": of("ips"),
}
BAD_QUOTAS = {
    "user": ("producer_byte_rate=0", "consumer_byte_rate=1.5", "request_percentage=-1"),
    "ip": ("connection_creation_rate=0", "connection_creation_rate=99999999999"),
    "client": ("producer_byte_rate=1e30", "connection_creation_rate=1"),
}


def limits(peer: Peer, *entity: str) -> list[list[str]]:
    """The limits of entities; Kafka sends the keys of an entity in any order."""
    lines = sorted(dynamic(peer, *entity))
    return [sorted(re.split(r" are |, ", line)) for line in lines]


@row("configs-quotas-entities")
def alters_quotas_of_all_entities(peer: Peer) -> object:
    """Quotas of users, clients, both, addresses and their defaults are set, told and removed; bad
    ones are refused.

    Of users alone nothing is asked: the tool asks for their SCRAM credentials, too.
    """
    for name, entity in QUOTA_ENTITIES.items():
        keys = ("connection_creation_rate",) if name.startswith("ip") else (
            "producer_byte_rate", "request_percentage", "controller_mutation_rate",
        )  # fmt: skip
        values = ",".join(f"{key}={1000 + index}" for index, key in enumerate(keys))
        configs(peer, *entity, "--alter", "--add-config", values)
    told = {name: each for name, each in QUOTA_ENTITIES.items() if not name.startswith("user")}
    seen = {name: limits(peer, *entity) for name, entity in told.items()}
    why = {
        bad: refused(peer, *QUOTA_ENTITIES[name], "--alter", "--add-config", bad)
        for name, each in BAD_QUOTAS.items()
        for bad in each
    }
    for name, entity in QUOTA_ENTITIES.items():
        key = "connection_creation_rate" if name.startswith("ip") else "producer_byte_rate"
        configs(peer, *entity, "--alter", "--delete-config", key)
    return seen, why, {name: limits(peer, *entity) for name, entity in told.items()}
