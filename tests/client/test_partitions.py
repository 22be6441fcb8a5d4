"""R20: the four ill states, as Kafka's TopicCommand defines them."""

import pytest

from anabranch.client.partitions import Illness, Partition

UNDER, MIN, AT, GONE = (
    Illness.UNDER_REPLICATED,
    Illness.UNDER_MIN_ISR,
    Illness.AT_MIN_ISR,
    Illness.UNAVAILABLE,
)


@pytest.mark.parametrize(
    ("leader", "isr", "minimum", "illnesses"),
    [
        (1, (1, 2, 3), 2, set()),
        (1, (1, 2, 3), 3, {AT}),
        (1, (1, 2), 2, {UNDER, AT}),
        (1, (1,), 2, {UNDER, MIN}),
        (-1, (), 1, {UNDER, MIN, GONE}),
        (-1, (1,), 1, {UNDER, MIN, AT, GONE}),
        (-1, (1, 2, 3), 2, {MIN, GONE}),
        (1, (1, 2, 3), 4, {MIN}),
    ],
)
def test_r20_what_is_wrong_with_a_partition(leader, isr, minimum, illnesses):
    partition = Partition(0, leader, 0, replicas=(1, 2, 3), isr=isr, observers=(4,))
    assert partition.illnesses(minimum) == illnesses
