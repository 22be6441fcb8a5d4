"""Whose quota holds: the table of Kafka's documentation, against any set of quotas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from anabranch.core.quotas.limits import Limit, address_limits, limit_of

KEY = "producer_byte_rate"
NAMES = st.sampled_from([None, "a", "b"])
ENTITIES = st.one_of(
    st.tuples(NAMES.map(lambda name: ("user", name))),
    st.tuples(NAMES.map(lambda name: ("client-id", name))),
    st.tuples(NAMES.map(lambda n: ("client-id", n)), NAMES.map(lambda n: ("user", n))),
)
QUOTAS = st.dictionaries(
    ENTITIES,
    st.dictionaries(st.sampled_from([KEY, "consumer_byte_rate"]), st.floats(1, 9), min_size=1),
)
ORDER = ("<user> <client>", "<user> *", "<user>", "* <client>", "* *", "*", "/<client>", "/*")
"""Kafka's order; `*` is the default, `/` no user."""


def in_words(entity) -> str:
    """As ORDER names them, for the client that is asked about."""
    names = dict(entity)
    client = {None: "*"}.get(names.get("client-id"), "<client>") if "client-id" in names else ""
    if "user" not in names:
        return f"/{client}"
    return f"{'*' if names['user'] is None else '<user>'} {client}".strip()


@given(QUOTAS, st.sampled_from(["a", "c"]), st.sampled_from(["a", "b", "c", ""]))
def test_the_most_specific_quota_holds(quotas, user, client_id):
    image = Map({entity: Map(values) for entity, values in quotas.items()})
    fits = {}
    for entity, values in quotas.items():
        names = dict(entity)
        if names.get("user", user) not in (user, None) or KEY not in values:
            continue
        if "client-id" in names and (not client_id or names["client-id"] not in (client_id, None)):
            continue
        fits[in_words(entity)] = values[KEY]
    best = next((each for each in ORDER if each in fits), None)
    found = limit_of(image, KEY, user, client_id)
    if best is None:
        assert found is None
        return
    of_user, of_client = not best.startswith("/"), " " in best or best.startswith("/")
    assert found == Limit(user if of_user else "", client_id if of_client else "", fits[best])


def test_addresses_are_found_however_they_were_written():
    rate = Map({"connection_creation_rate": 5.0})
    image = Map({
        (("ip", "0:0:0:0:0:0:0:1"),): rate, (("ip", None),): rate, (("user", "a"),): Map({KEY: 1.0}),
    })  # fmt: skip
    assert address_limits(image) == {"::1": 5.0, None: 5.0}
