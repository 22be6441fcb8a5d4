"""One addition by each recipe of CONTRIBUTING.md, as a newcomer would make it: path -> its edit.

An edit is a whole new file, or pairs of a text that stands in the file and what it becomes. Kept as
small as the recipe allows: the tests ask whether the named files are all that must change.
"""

from __future__ import annotations

from collections.abc import Mapping

Edit = str | tuple[tuple[str, str], ...]
CORE = "src/anabranch/core"
TOPIC_TABLE = f"{CORE}/settings/tables/topic.py"
READER = f"{CORE}/controller/topics/diskless.py"
NAMED_INSTEAD = {READER: TOPIC_TABLE}
"""Where nobody can know which file is missing: the one that says that there should be one."""

API_KEY: Mapping[str, Edit] = {
    f"{CORE}/wire/messages/__init__.py": (
        ("\n)\n\nAPI_KEYS", '\n    (99, "Greet", range(1), 0),\n)\n\nAPI_KEYS'),
    ),
    f"{CORE}/wire/messages/greet.py": """\"\"\"Greet (API key 99): a greeting.\"\"\"

from anabranch.core.wire.schema import Message, String


class GreetRequest(Message, api_key=99, versions="0", flexible="0+"):
    name: String = ""


class GreetResponse(Message, api_key=99, versions="0", flexible="0+"):
    greeting: String = ""
""",
    f"{CORE}/api/p99_greet.py": """\"\"\"Greet: says good day.

KIP: none
Versions: 0
Behaviour: greets whoever is named.
Skipped: nothing
\"\"\"

from anabranch.core.api.handler import Handler
from anabranch.core.wire.messages.greet import GreetResponse


def run(_broker, request, _now_ms):
    \"\"\"Greet.\"\"\"
    return GreetResponse(greeting=f"Good day, {request.body.name}.")


HANDLER = Handler(api_key=99, name="Greet", versions=range(1), broker=run)
""",
}

RECORD: Mapping[str, Edit] = {
    f"{CORE}/wire/own_records.py": (
        (
            "\n\nclass PlanMove(Struct)",
            '\n\nclass MottoRecord(Message, type_id=10_099, versions="0", flexible="0+"):\n'
            '    """What the cluster is for."""\n\n'
            '    motto: String = ""\n\n\nclass PlanMove(Struct)',
        ),
        ("            PlanRecord,\n", "            PlanRecord,\n            MottoRecord,\n"),
        (
            '    }\n)\n"""Every id',
            '        10_099: OwnRecord("a motto", PLANS_SINCE),\n    }\n)\n"""Every id',
        ),
    ),
    f"{CORE}/metadata/image.py": (
        ("    placement_cursor: int = 0\n", '    placement_cursor: int = 0\n    motto: str = ""\n'),
    ),
    f"{CORE}/metadata/concerns/motto.py": """\"\"\"What the cluster is for. A record of our own.\"\"\"

from anabranch.core.wire.own_records import MottoRecord


def _motto(builder, record):
    builder.scalars["motto"] = record.motto


RULES = {MottoRecord: _motto}


def snapshot(image):
    \"\"\"The motto, if there is one.\"\"\"
    if image.motto:
        yield MottoRecord(motto=image.motto)
""",
    f"{CORE}/metadata/concerns/table.py": (
        (
            "    feature_levels,\n    placement_cursor,\n",
            "    feature_levels,\n    motto,\n    placement_cursor,\n",
        ),
        (
            "    absences,\n    placement_cursor,\n    plans,\n    producer_ids,\n",
            "    absences,\n    motto,\n    placement_cursor,\n    plans,\n    producer_ids,\n",
        ),
    ),
}

SETTING: Mapping[str, Edit] = {
    TOPIC_TABLE: (
        (
            '    row("cleanup.policy",',
            '    row("anabranch.motto", "What the topic is for.", STRING, "none", LOW, OURS, IN_FORCE),\n'
            '    row("cleanup.policy",',
        ),
    ),
    f"{CORE}/settings/topic.py": (
        ("    cleanup_policy: tuple", "    anabranch_motto: str\n    cleanup_policy: tuple"),
    ),
    READER: (
        (
            "\n\ndef _refusal(sentence",
            '    if topic.anabranch_motto == "disks":\n'
            '        raise _refusal(f"Topic {name} cannot be diskless with anabranch.motto=disks.")\n'
            "\n\ndef _refusal(sentence",
        ),
    ),
}

PLACER: Mapping[str, Edit] = {
    f"{CORE}/placement/first.py": """\"\"\"The brokers with the lowest ids.

Goals: lists that everybody can foretell.
Constraints: distinct brokers in a partition.
Algorithm: the first brokers in the order of ids, for each partition.
Trade-off: the other brokers carry nothing.
\"\"\"

from anabranch.core.placement.placer import Placement


def first(brokers, ask, rng):
    \"\"\"Replica lists of the first brokers.\"\"\"
    ids = sorted(each.broker_id for each in brokers)[: ask.replication_factor]
    return Placement([tuple(ids)] * ask.partition_count, ask.cursor)
""",
    f"{CORE}/placement/placers.py": (
        (
            "from anabranch.core.placement.placer ",
            "from anabranch.core.placement.first import first\nfrom anabranch.core.placement.placer ",
        ),
        ('        "spread": spread,\n', '        "spread": spread,\n        "first": first,\n'),
    ),
}

METRIC: Mapping[str, Edit] = {
    "src/anabranch/server/exported.py": (
        (
            "DISKLESS: tuple[Exported, ...] = (\n",
            'DISKLESS: tuple[Exported, ...] = (\n    Exported("anabranch_mottos", GAUGE, "How many mottos there are."),\n',
        ),
    ),
    "src/anabranch/server/metrics.py": (
        (
            '        yield "anabranch_start_seconds", ',
            '        yield "anabranch_mottos", (), 1\n        yield "anabranch_start_seconds", ',
        ),
    ),
}

ADDITIONS: Mapping[str, Mapping[str, Edit]] = {
    "An API key.": API_KEY,
    "A metadata record.": RECORD,
    "A setting.": SETTING,
    "A placer.": PLACER,
    "A metric.": METRIC,
}

WORKS = """
from random import Random
from types import SimpleNamespace

from anabranch.core.api.registry import advertised, handlers
from anabranch.core.controller.topics.diskless import refuse_forbidden
from anabranch.core.errors import ClientFault
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.core.placement.placers import PLACERS
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig
from anabranch.core.settings.validators import PLACER
from anabranch.core.wire import metadata_records as records
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.own_records import MottoRecord
from anabranch.server.metrics import NodeCollector

request = SimpleNamespace(body=API_KEYS[99].request(name="Kafka"))
assert handlers()[99].broker(None, request, 0).greeting == "Good day, Kafka."
assert (99, 0, 0) in advertised("broker")
record = records.decode_record(records.encode_record(MottoRecord(motto="flow")))
image = replay(MetadataImage.empty(), record)
assert from_snapshot(snapshot_records(image), 1, 0).motto == image.motto == "flow"
broker = BrokerConfig.of({})
refuse_forbidden("t", {}, TopicConfig.of({"anabranch.motto": "rivers"}, broker))
try:
    refuse_forbidden("t", {}, TopicConfig.of({"anabranch.motto": "disks"}, broker))
    raise AssertionError("the setting has no effect")
except ClientFault as fault:
    assert "anabranch.motto=disks" in str(fault)
usable = [UsableBroker(number, None, False) for number in (1, 2, 3)]
assert place(PLACERS["first"], usable, Ask(2, 2), Random(1)).rows == [(1, 2), (1, 2)]
assert "first" in PLACER.allowed
node = SimpleNamespace(
    broker=None, controller=None, controller_serving=None, started_seconds=1, acceptors=(),
    memory=SimpleNamespace(held_bytes=0), own_faults=SimpleNamespace(counts={}),
    changed=SimpleNamespace(kept_back=0),
)
assert "anabranch_mottos" in {each.name for each in NodeCollector(node).collect()}
print("all work")
"""
"""What shows that each of them has an effect."""
