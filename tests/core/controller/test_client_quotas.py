"""AlterClientQuotas and DescribeClientQuotas against a dictionary, and what is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.api.in_memory_node import InMemoryNode
from tests.core.controller.world import World

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.p48_describe_client_quotas import run
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.request import Request
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from anabranch.core.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

NAMES = st.sampled_from([None, "a", "b"])
ENTITIES = st.one_of(
    st.fixed_dictionaries({"user": NAMES}),
    st.fixed_dictionaries({"client-id": NAMES}),
    st.fixed_dictionaries({"user": NAMES, "client-id": NAMES}),
    st.fixed_dictionaries({"ip": st.sampled_from([None, "10.0.0.1", "::1"])}),
)
VALUES = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"]),
    st.sampled_from([None, 1.0, 1024.0, 1.5]),
    min_size=1,
    max_size=3,
)
FILTERS = st.dictionaries(
    st.sampled_from(["user", "client-id"]),
    st.sampled_from([(0, "a"), (0, "b"), (1, None), (2, None)]),
    max_size=2,
)


def alter(world, *changes, validate_only=False):
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity.items()],
            [OpData(key, value or 0.0, value is None) for key, value in values],
        )
        for entity, values in changes
    ]
    return world.ask(AlterClientQuotasRequest(entries, validate_only)).entries


def describe(image: MetadataImage, components=(), *, strict=False, expect=0):
    node = InMemoryNode()
    node.broker.image = image
    body = DescribeClientQuotasRequest(components=list(components), strict=strict)
    request = Request(48, 1, 1, "c", body, ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1)
    answer = run(node.broker, request, 0)
    assert answer.error_code == expect
    if expect:
        assert answer.entries is None
        return answer.error_message
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


def is_taken(entity, values):
    allowed = {"connection_creation_rate"} if "ip" in entity else {
        "producer_byte_rate", "consumer_byte_rate",
    }  # fmt: skip
    return all(value is None or (key in allowed and value != 1.5) for key, value in values.items())


@given(
    st.lists(st.tuples(ENTITIES, VALUES, st.booleans()), max_size=12), FILTERS, st.booleans()
)  # fmt: skip
def test_what_is_set_is_told_until_it_is_removed(steps, wanted, strict):
    world, plain = World(), {}
    for entity, values, only_checked in steps:
        (answer,) = alter(world, (entity, values.items()), validate_only=only_checked)
        taken = is_taken(entity, values)
        assert answer.error_code == (0 if taken else ErrorCode.INVALID_REQUEST)
        if taken and not only_checked:
            named = plain.setdefault(tuple(sorted(entity.items())), {})
            named.update(values)
        kept = {
            entity: {key: value for key, value in values.items() if value is not None}
            for entity, values in plain.items()
        }
        plain = {entity: values for entity, values in kept.items() if values}
        assert describe(world.image) == plain
    components = [ComponentData(kind, how, name) for kind, (how, name) in wanted.items()]
    assert describe(world.image, components, strict=strict) == {
        entity: values
        for entity, values in plain.items()
        if (len(entity) == len(wanted) or not strict)
        and (wanted or not strict)
        and all(
            kind in dict(entity) and (how == 2 or dict(entity)[kind] == name)
            for kind, (how, name) in wanted.items()
        )
    }


def test_an_entity_named_again_is_refused_and_others_are_changed():
    world = World()
    limit = [("producer_byte_rate", 5.0)]
    first, other = alter(world, ({"user": "a"}, limit), ({"user": "b"}, limit), ({"user": "a"}, []))
    assert first.error_message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"
    assert first.error_code == ErrorCode.INVALID_REQUEST
    assert (other.error_code, other.error_message) == (0, None)
    (twice,) = alter(world, ({"user": "c"}, limit * 2))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    assert set(describe(world.image)) == {(("user", "a"),), (("user", "b"),)}


def test_what_changes_nothing_writes_nothing():
    world = World()
    alter(world, ({"user": "a"}, [("producer_byte_rate", 5.0)]))
    written = len(world.batches)
    alter(world, ({"user": "a"}, [("producer_byte_rate", 5.0), ("consumer_byte_rate", None)]))
    assert len(world.batches) == written


def test_filters_that_mean_nothing_are_refused():
    image = World().image
    invalid = ErrorCode.INVALID_REQUEST
    for components, code, sentence in [
        ([("", 0, "a")], invalid, "Invalid empty entity type."),
        ([("user", 0, "a"), ("user", 2, None)], invalid,
         "Entity type user cannot appear more than once in the filter."),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", 0, None)], invalid,
         "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], invalid,
         "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], invalid,
         "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 9, None)], invalid, "Unknown match type 9"),
        ([("ip", 2, None), ("user", 2, None)], invalid,
         "Invalid entity filter component combination. IP filter component should not be used "
         "with user or clientId filter component."),
    ]:  # fmt: skip
        found = describe(image, [ComponentData(*each) for each in components], expect=code)
        assert found == sentence
