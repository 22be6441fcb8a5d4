"""The verdict on an upgrade finds what each client was told and is not so."""

from __future__ import annotations

import json

import pytest
from chaos.upgrade_clients import PLAIN, TRANSFERS, notes, verdict

CLEAN = {
    "write": [{"at": 1.0, "n": 0, "partition": 0, "offset": 0},
              {"at": 1.5, "n": 1, "partition": 0, "offset": 1}],
    "transfer": [{"at": 1.0, "n": 7}],
    "read": [{"at": 1.0, "n": 0}, {"at": 1.0, "n": 1}],
    "read_all": [{"topic": PLAIN, "partition": 0, "offset": 0, "n": 0},
                 {"topic": PLAIN, "partition": 0, "offset": 1, "n": 1},
                 {"topic": TRANSFERS, "partition": 0, "offset": 0, "n": 7},
                 {"topic": TRANSFERS, "partition": 1, "offset": 0, "n": 7}],
}  # fmt: skip


def judged(folder, **changed):
    for role, found in {**CLEAN, **changed}.items():
        (folder / role).write_text("".join(json.dumps(each) + "\n" for each in found))
    return verdict(folder)


def test_a_clean_upgrade_is_clean(tmp_path):
    found = judged(tmp_path)
    assert (found["acknowledged"], found["transactions"], found["longest_wait_seconds"]) == (
        2,
        1,
        0.5,
    )
    bad = ("refused", "missing", "twice", "torn", "not_seen_by_the_group")
    assert [found[each] for each in bad] == [0] * 5


@pytest.mark.parametrize(
    ("role", "change", "what"),
    [
        ("read_all", lambda rows: rows[1:], "missing"),
        ("read_all", lambda rows: [{**rows[0], "n": 5}, *rows[1:]], "missing"),
        ("read_all", lambda rows: [*rows, {**rows[0], "offset": 2}], "twice"),
        ("read_all", lambda rows: rows[:-1], "torn"),
        ("read", lambda rows: rows[:1], "not_seen_by_the_group"),
        ("write", lambda rows: [*rows, {"at": 2.0, "n": 2, "fault": "gone"}], "refused"),
    ],
)
def test_what_is_wrong_is_found(tmp_path, role, change, what):
    assert judged(tmp_path, **{role: change(CLEAN[role])})[what] == 1


def test_a_note_that_a_kill_cut_off_is_none(tmp_path):
    (tmp_path / "notes").write_text('{"n": 1}\n{"n"')
    assert [each["n"] for each in notes(tmp_path / "notes")] == [1]
