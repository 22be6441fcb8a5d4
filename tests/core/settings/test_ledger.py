"""The ledger of settings: one that is marked in force is read, and one that is read is marked.

A broker setting counts as read when code outside `core/settings` reads its attribute or its name,
or when it is the default of a topic setting that is read. A topic setting counts as read when its
attribute is read there, or the log reads what `log_config` made of it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import anabranch.core
from anabranch.core.log.config import LogConfig
from anabranch.core.settings import topic as topic_module
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS

CORE = Path(anabranch.core.__file__).parent
SETTINGS = CORE / "settings"
OF_LISTENERS = (SETTINGS / "listener_security.py", SETTINGS / "listener_tokens.py")
"""Settings that a listener may have for itself are read here, by their names."""
LOG_CONFIG = CORE / "log" / "config.py"
READERS = (CORE, CORE.parent / "server")
WIRE = CORE / "wire"


def sources():
    """The code that may read a setting."""
    for folder in READERS:
        for path in sorted(folder.rglob("*.py")):
            if SETTINGS not in path.parents and WIRE not in path.parents and path != LOG_CONFIG:
                yield path


def readable():
    """Every attribute and every string constant in that code."""
    attributes, texts = set(), set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                texts.add(node.slice.value)
    for path in OF_LISTENERS:
        constants = (each for each in ast.walk(ast.parse(path.read_text())))
        texts |= {each.value for each in constants if isinstance(each, ast.Constant)}
    return attributes, texts


ATTRIBUTES, TEXTS = readable()
IN_LOG = {
    setting: log_name
    for log_name, setting in re.findall(
        r"(\w+)=topic\.(?:internal_segment_bytes or topic\.)?(\w+)",
        textwrap.dedent(inspect.getsource(topic_module._log_config.__wrapped__)),
    )
} | {"segment_ms": "segment_ms"}  # through `_roll_by_ms`
"""TopicConfig's attribute -> LogConfig's."""
DERIVED = {"cleanup_policy": {"compacted", "deletes"}}
"""LogConfig's properties that stand for an attribute."""


def topic_setting_is_read(setting):
    log_name = IN_LOG.get(setting.attribute)
    names = {setting.attribute, log_name} | DERIVED.get(log_name, set())
    return bool(names & ATTRIBUTES)


def broker_setting_is_read(setting):
    if setting.attribute in ATTRIBUTES or setting.name in TEXTS:
        return True
    return any(
        setting.name in topic_setting.synonyms and topic_setting_is_read(topic_setting)
        for topic_setting in TOPIC_SETTINGS.values()
    )


def table_of(name):
    """The file with a setting's row; a synonym has none of its own."""
    for path in sorted((SETTINGS / "tables").glob("*.py")):
        if f'row("{name}"' in path.read_text():
            return f"src/anabranch/core/settings/tables/{path.name}"
    return "src/anabranch/core/settings/tables"


def assert_equal(marked, read):
    """Marks and readers agree; who breaks that is told which file to change."""
    faults = [
        f"{table_of(name)} marks {name} in force, and no code of core or server outside "
        f"core/settings reads it: add what reads it, or remove IN_FORCE"
        for name in sorted(marked - read)
    ] + [
        f"{table_of(name)} does not mark {name} with IN_FORCE, but there is code that reads it"
        for name in sorted(read - marked)
    ]
    assert not faults, "\n".join(faults)


def test_the_log_s_settings_are_found():
    assert IN_LOG["flush_messages"] == "flush_interval_messages"
    assert set(IN_LOG.values()) | {"producer_id_expiration_ms"} == set(LogConfig.__struct_fields__)


def test_topic_settings_in_force_are_those_that_are_read():
    marked = {name for name, setting in TOPIC_SETTINGS.items() if setting.in_force}
    read = {name for name, setting in TOPIC_SETTINGS.items() if topic_setting_is_read(setting)}
    assert_equal(marked, read)


def test_broker_settings_in_force_are_those_that_are_read():
    marked = {name for name, setting in BROKER_SETTINGS.items() if setting.in_force}
    read = {name for name, setting in BROKER_SETTINGS.items() if broker_setting_is_read(setting)}
    assert_equal(marked, read)


def test_only_settings_in_force_are_typed_attributes():
    typed = set(BrokerConfig.__annotations__)
    typed -= {"static", "dynamic_broker", "dynamic_default", "ignored"}
    in_force = {setting.attribute for setting in BROKER_SETTINGS.values() if setting.in_force}
    assert sorted(typed - in_force) == []
