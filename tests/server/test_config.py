"""What a node becomes from a file, the command line and nothing at all, and what is refused."""

from __future__ import annotations

import os

import pytest
from tests.core.settings.kafka_facts import rows

from anabranch.server.config import OFF, ConfigError, Listener, load_config


@pytest.fixture
def load(tmp_path):
    def load(text, *overrides):
        path = tmp_path / "server.properties"
        path.write_text(text)
        return load_config(str(path), overrides)

    return load


def refusal(*overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_nothing_configured_is_a_node_of_its_own():
    config = load_config()
    assert config.node_id == 1
    assert config.process_roles == ("broker", "controller")
    assert config.broker_listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.controller_listeners == (Listener("CONTROLLER", "127.0.0.1", 0, "PLAINTEXT"),)
    assert config.advertised_listeners == config.broker_listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == (os.path.abspath("anabranch-data"),)
    assert config.metadata_log_dir == config.log_dirs[0]
    assert config.metadata_store_url == f"sqlite://{config.log_dirs[0]}/metadata-store.db"
    assert (config.http_host, config.http_port) == ("", OFF)
    assert config.warnings == ()
    assert config.broker.static["node.id"] == "1"


def test_a_kafka_file_is_read_as_it_is(load):
    config = load(
        """
        # a broker as Kafka's documents show it
        process.roles=broker,controller
        node.id=7
        controller.quorum.voters=7@localhost:9093
        listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        advertised.listeners=PLAINTEXT://broker.example:19092
        controller.listener.names=CONTROLLER
        inter.broker.listener.name=PLAINTEXT
        log.dirs=/var/a, /var/b
        num.partitions=3
        broker.rack=r1
        log.retention.hours=168
        """
    )
    assert config.node_id == 7
    assert config.log_dirs == ("/var/a", "/var/b")
    assert config.metadata_store_url == "sqlite:///var/a/metadata-store.db"
    assert config.advertised_listeners[0].text == "PLAINTEXT://broker.example:19092"
    assert config.advertised_controllers[0].text == "CONTROLLER://localhost:9093"
    assert config.rack == "r1"
    assert config.broker.num_partitions == 3
    assert config.warnings == ()


def test_a_controller_may_be_reached_elsewhere_than_it_listens(load):
    config = load(
        """
        process.roles=controller
        listeners=CONTROLLER://0.0.0.0:9093
        advertised.listeners=CONTROLLER://c1.example:19093
        listener.plaintext.beyond.loopback.allow=true
        """
    )
    assert config.listeners[0].text == "CONTROLLER://0.0.0.0:9093"
    assert config.advertised_controllers[0].text == "CONTROLLER://c1.example:19093"
    assert config.advertised_listeners == ()


def test_the_command_line_goes_before_the_file(load):
    config = load("num.partitions=3\nlog.dirs=/a\n", "num.partitions=5", "metadata.log.dir=/m")
    assert config.broker.num_partitions == 5
    assert config.metadata_log_dir == "/m"


def test_a_client_listener_alone_gets_a_controller_listener():
    config = load_config(None, ["listeners=PLAINTEXT://127.0.0.1:0"])
    assert [each.name for each in config.listeners] == ["PLAINTEXT", "CONTROLLER"]


def test_a_broker_alone_finds_controllers():
    config = load_config(
        None, ["process.roles=broker", "controller.quorum.bootstrap.servers=a:1,[::1]:2"]
    )
    assert config.controllers == (("a", 1), ("::1", 2))
    assert config.metadata_store_url == ""
    assert not config.is_controller
    assert "controller.quorum.bootstrap.servers" in refusal("process.roles=broker")


def test_the_voters_tell_too_where_controllers_are():
    config = load_config(None, ["process.roles=broker", "controller.quorum.voters=2@c:93"])
    assert config.controllers == (("c", 93),)


def test_http_is_an_address():
    config = load_config(None, ["http.listener=127.0.0.1:0"])
    assert (config.http_host, config.http_port) == ("127.0.0.1", 0)
    assert "write host:port" in refusal("http.listener=9644")
    assert "beyond.loopback" in refusal("http.listener=0.0.0.0:9644")


def test_plaintext_beyond_loopback_must_be_meant():
    message = refusal("listeners=PLAINTEXT://0.0.0.0:9092")
    assert "listener.plaintext.beyond.loopback.allow=true" in message
    config = load_config(
        None,
        [
            "listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners=PLAINTEXT://10.1.1.1:9092",
            "listener.plaintext.beyond.loopback.allow=true",
        ],
    )
    assert config.broker_listeners[0].host == "0.0.0.0"


def test_a_mistake_is_told_with_file_line_key_and_remedy(load):
    with pytest.raises(ConfigError) as caught:
        load("# one\n\nnode.id=1\nnum.partitions=many\n")
    message = str(caught.value)
    assert "server.properties:4: num.partitions: Invalid value many" in message
    assert "allowed: int [1,...]; default 1" in message
    assert "--set: num.partitions" in refusal("num.partitions=0")


def test_an_unknown_key_warns_with_the_nearest_known_one(load):
    config = load("log.retention.mss=5\nlisteners.name.x=1\nzzz=1\nrsm.config.a=1\n")
    first, second, third = config.warnings
    assert first.endswith(
        "server.properties:1: log.retention.mss is not a setting and is ignored; "
        "did you mean log.retention.ms?"
    )
    assert "listeners.name.x" in second
    assert third.endswith("zzz is not a setting and is ignored")


def test_a_switch_that_is_on_in_vain_is_named(load):
    name = "transaction.two.phase.commit.enable"
    [warning] = load(f"{name}=true\n").warnings
    assert f"server.properties:1: {name} has no effect: two-phase commit" in warning
    assert not load(f"{name}=false\n").warnings


def test_an_authorizer_that_knows_nobody_is_named(load):
    """Its operator believes that ACLs tell clients apart."""
    name = "authorizer.class.name"
    [warning] = load(f"{name}=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n").warnings
    assert "clients of PLAINTEXT, CONTROLLER do not show who they are" in warning
    assert not load(f"{name}=\n").warnings


def test_another_authorizer_is_refused(load):
    with pytest.raises(
        ConfigError, match=r"server\.properties:1: authorizer\.class\.name: com\.Own"
    ):
        load("authorizer.class.name=com.Own\n")


def test_super_users_are_principals(load):
    with pytest.raises(
        ConfigError, match=r"super\.users: 'admin' is no principal; write TYPE:NAME"
    ):
        load("super.users=User:root;admin\n")


def test_listeners_of_nodes_are_those_that_clients_have_others_for():
    assert load_config(None, []).node_listener_names == {"CONTROLLER"}
    split = load_config(None, [
        "listeners=IN://127.0.0.1:9092,OUT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name=IN",
    ])  # fmt: skip
    assert split.node_listener_names == {"CONTROLLER", "IN"}


def test_r15_an_alias_is_taken_and_a_ghost_is_named(load):
    config = load("log.recovery.threads.per.data.dir=4\nunclean.shutdown.recovery.enable=true\n")
    assert config.broker.num_recovery_threads_per_data_dir == 4
    alias, ghost = config.warnings
    assert "is read as num.recovery.threads.per.data.dir" in alias
    assert "this setting does not exist in Kafka" in ghost


def test_r7_the_imbalance_percentage_is_accepted():
    config = load_config(None, ["leader.imbalance.per.broker.percentage=10"])
    assert config.warnings == ()


def test_a_key_that_is_there_twice_warns(load):
    config = load("num.partitions=1\nnum.partitions=2\n")
    assert config.broker.num_partitions == 2
    assert "appears twice" in config.warnings[0]


def test_line_numbers_count_continued_lines(load):
    with pytest.raises(ConfigError, match=r"server\.properties:3: num\.partitions"):
        load("log.dirs=/a,\\\n  /b\nnum.partitions=0\n")


STRICTER = {
    "broker.heartbeat.interval.ms": {"10000", "2147483647"},
    "broker.session.timeout.ms": {"-3", "-2", "-1", "0", "1", "2", "5", "100"},
    "max.connection.creation.rate": {"0"},
    "max.connections": {"0"},
    "num.replica.fetchers": {"-3", "-2", "-1", "0"},
    "offsets.topic.segment.bytes": {"1", "2", "5", "100", "10000"},
    "transaction.state.log.segment.bytes": {"1", "2", "5", "100", "10000"},
}
"""What Kafka takes at its start and then cannot work with; most of it a running broker refuses."""
MORE_LENIENT = {
    "connection.failed.authentication.delay.ms": {"2147483647"},
    "connections.max.idle.ms": {"0", "1", "2", "5", "100"},
}
"""The delay of failed authentications has no effect here."""


@pytest.mark.parametrize("row", rows("kafka_4_1_0_values.tsv"), ids=lambda row: row[0])
def test_a_number_is_taken_where_kafka_takes_it(row):
    """Settings that bound one another, as the least and the longest session of a group, were not
    compared, and no number of fetchers was too small."""
    name, *texts = row
    taken, refused = (set(filter(None, text.split(","))) for text in texts)
    stricter, lenient = STRICTER.get(name, set()), MORE_LENIENT.get(name, set())
    assert stricter <= taken
    assert lenient <= refused
    ours = {"taken": set(), "refused": set()}
    for value in taken | refused:
        try:
            load_config(None, [f"{name}={value}"])
            ours["taken"].add(value)
        except ConfigError:
            ours["refused"].add(value)
    assert ours["refused"] == (refused | stricter) - lenient


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["num.partitions"], "write key=value"),
        (["node.id=1", "broker.id=2"], "same value as `broker.id`"),
        (["process.roles=cook"], "String must be one of: broker, controller"),
        (["process.roles="], "process.roles"),
        (["process.roles=broker,broker"], "each once"),
        (["listeners=foo"], "Unable to parse foo"),
        (["listeners=PLAINTEXT://a..b:1"], "a..b is not a host name"),
        (["listeners=TLS://127.0.0.1:1"], "No security protocol defined for listener TLS"),
        (["listeners=SSL://127.0.0.1:1"], "needs a key and its certificate"),
        (["controller.listener.names=FOO"], "a controller needs a listener"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "nonroutable meta-address 0.0.0.0"),
        (["advertised.listeners=SSL://h:1"], "is not in `listeners`"),
        (["inter.broker.listener.name=FOO"], "FOO is no advertised listener"),
        (["log.dirs="], "At least one log directory"),
        (["log.dirs=/a,/a"], "appears twice"),
        (["log.retention.ms=0"], "must be unlimited (-1) or"),
        (["log.roll.ms=0"], "must be greater than or equal to 1"),
        (
            ["transaction.state.log.segment.bytes=1048575"],
            "transaction.state.log.segment.bytes: must be greater than or equal to 1048576",
        ),
        (
            ["offsets.topic.segment.bytes=1"],
            "offsets.topic.segment.bytes: must be greater than or equal to 1048576",
        ),
        (["broker.session.timeout.ms=1000"], "broker.heartbeat.interval.ms"),
        (["cordoned.log.dirs=*"], "run `anabranch cluster cordon --broker ID`"),
        (["cordoned.log.dirs=/d"], "folders cannot be cordoned one by one"),
        (["offsets.topic.compression.codec=5"], "offsets.topic.compression.codec"),
        (["max.connections.per.ip.overrides=h:x"], "as in 10.0.0.1:5"),
        (["queued.max.request.bytes=100"], "must be at least socket.request.max.bytes (104857600)"),
        (
            ["group.consumer.min.session.timeout.ms=9", "group.consumer.max.session.timeout.ms=8"],
            "--set: group.consumer.max.session.timeout.ms: must be at least "
            "group.consumer.min.session.timeout.ms (9)",
        ),
        (
            ["group.share.min.heartbeat.interval.ms=15000"],
            "--set: group.share.min.heartbeat.interval.ms: must be at most "
            "group.share.heartbeat.interval.ms (5000)",
        ),
        (["log.cleaner.threads=200"], "log.cleaner.dedupe.buffer.size"),
        *(
            ([f"metadata.store.url={url}"], "metadata.store.url: write sqlite:///path/to/meta")
            for url in ("sqlite://", "sqlite://:memory:", "sqlite://m.db", "sqlite://./m.db")
        ),
        (["max.connections.per.ip=0"], "max.connections.per.ip.overrides"),
        (["replica.selector.class=com.example.Own"], "write org.apache.kafka.common.replica.Rack"),
        (["process.roles=controller", "listeners=PLAINTEXT://127.0.0.1:1"], "controller"),
        (
            [
                "process.roles=controller",
                "listeners=CONTROLLER://127.0.0.1:1,IN://127.0.0.1:2",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,IN:PLAINTEXT",
            ],
            "IN is not in controller.listener.names",
        ),
        (
            [
                "process.roles=broker",
                "controller.quorum.bootstrap.servers=127.0.0.1:9",
                "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
            ],
            "CONTROLLER is in controller.listener.names",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(overrides, part):
    assert part in refusal(*overrides)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path))
