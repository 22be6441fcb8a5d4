"""The placers that there are, by the names that `replica.placer.class.name` takes.

Rule kept: a name says all; a placer has no settings and no state of its own (what one remembers is
in the metadata). Source of the setting's name: KIP-1203; Kafka's own class stands for `striped`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anabranch.core.placement.computed import computed
from anabranch.core.placement.placer import Placer
from anabranch.core.placement.spread import spread
from anabranch.core.placement.striped import striped

PLACERS: Mapping[str, Placer] = MappingProxyType(
    {
        "computed": computed,
        "spread": spread,
        "striped": striped,
        "org.apache.kafka.metadata.placement.StripedReplicaPlacer": striped,
    }
)
"""Name -> placer. Replica lists that a request gives need none: that is manual assignment."""
CHAINED = "computed"
"""The placer whose lists follow each other from topic to topic, so that the cursor is kept."""
