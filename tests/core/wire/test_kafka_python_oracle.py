"""kafka-python, the second codec that others wrote, reads and writes the same bytes."""

from __future__ import annotations

import importlib
import pkgutil

import kafka.protocol
import pytest
from generated import REQUESTS, structures, version_id
from hypothesis import HealthCheck, given, settings

from anabranch.core.wire.codec import encode_bytes
from anabranch.core.wire.messages import FIRST_OWN_KEY
from anabranch.core.wire.messages.api_versions import ApiVersionsResponse

NOT_KNOWN_TO_KAFKA_PYTHON = {
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "Envelope",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "FetchSnapshot",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "RenewDelegationToken",
    "UnregisterBroker",
}


def their_classes():
    found = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        try:
            names = vars(importlib.import_module(module.name))
        except ImportError:
            continue
        for name, value in names.items():
            if isinstance(value, type) and hasattr(value, "min_version"):
                found[name] = value
    return found


THEIRS = their_classes()
VERSIONS = [
    (cls, version)
    for cls in REQUESTS
    if cls.__name__ in THEIRS
    for version in cls.versions
    if THEIRS[cls.__name__].min_version <= version <= THEIRS[cls.__name__].max_version
]


def test_only_the_expected_requests_lack_this_oracle():
    compared = {cls.__name__ for cls, _ in VERSIONS}
    lacking = {cls.__name__ for cls in REQUESTS if cls.api_key < FIRST_OWN_KEY} - compared
    assert {name.removesuffix("Request").removesuffix("Response") for name in lacking} == (
        NOT_KNOWN_TO_KAFKA_PYTHON
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=version_id)
def test_it_reads_and_writes_the_same_bytes(cls, version):
    theirs = THEIRS[cls.__name__]

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(structures(cls, version))
    def round_trip(message):
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # it reads every refusal as version 0 (KIP-511)
        ours = encode_bytes(message, version)
        decoded = theirs.decode(ours, version=version)
        decoded._header = None  # it expects one when it writes
        assert bytes(decoded.encode(version=version)) == ours

    round_trip()
