"""`anabranch` as a version would be that knows the metadata only up to Kafka's 4.0-IV0.

Run as a program: what it cannot do is taken from the tables of today's version before a node reads
them. It has no eligible leader replicas, and neither writes nor reads the versions of records that
carry them, so that a log with one of these stops it as it would stop a real one.
"""

from __future__ import annotations

from anabranch.cli.main import main
from anabranch.core.metadata import features
from anabranch.core.metadata.levels import version_at
from anabranch.core.wire.metadata_records import PartitionChangeRecord, PartitionRecord
from anabranch.core.wire.own_records import RECORDS_FEATURE

LEVEL = 22
RECORDS_LEVEL = 1

if __name__ == "__main__":
    for kind in (PartitionRecord, PartitionChangeRecord):
        kind.versions = range(version_at(kind, LEVEL) + 1)
    features.SUPPORTED_FEATURES[features.METADATA_VERSION] = (7, LEVEL)
    features.BOOTSTRAP_LEVELS[features.METADATA_VERSION] = LEVEL
    features.SUPPORTED_FEATURES[RECORDS_FEATURE] = (0, RECORDS_LEVEL)
    del features.SUPPORTED_FEATURES[features.ELR_VERSION]
    del features.BOOTSTRAP_LEVELS[features.ELR_VERSION]
    main()
