"""The checks that hold for every placer."""

# ruff: noqa: E501

from random import Random

import pytest

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.core.placement.placers import PLACERS


def brokers(*fenced: bool) -> list[UsableBroker]:
    return [UsableBroker(number, None, each) for number, each in enumerate(fenced)]


@pytest.mark.parametrize("name", ["computed", "spread", "striped"])
@pytest.mark.parametrize(
    ("usable", "factor", "sentence"),
    [
        (brokers(False), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (brokers(True, True), 1, "All brokers are currently fenced."),
        (brokers(), 1, "All brokers are currently fenced."),
        (brokers(False), 2, "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered."),
    ],
)  # fmt: skip
def test_the_checks_before_any_placer(
    name: str, usable: list[UsableBroker], factor: int, sentence: str
) -> None:
    with pytest.raises(ClientFault) as caught:
        place(PLACERS[name], usable, Ask(1, factor), Random(1))
    assert (caught.value.code, caught.value.message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        sentence,
    )
