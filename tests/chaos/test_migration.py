"""`python -m chaos.migration`: a round with a kill passes, and a topic that stays as it is is told."""

from __future__ import annotations

import pytest
from chaos.mirror import Stuck

from chaos import migration


def test_a_round_with_a_kill_is_judged(tmp_path):
    lines = []
    migration.run(0.1, tmp_path, lines.append)
    assert "round 1: leader killed in preparing; diskless after" in lines[0]
    assert lines[1].startswith("1 topics became diskless, 1 kills")


def test_a_topic_that_stays_as_it_is_is_told(monkeypatch):
    monkeypatch.setattr(migration, "LIMIT_SECONDS", 0.1)
    operator = migration.Operator("127.0.0.1:1", "still")
    asked, seen = [], []
    monkeypatch.setattr(operator, "phase", lambda: migration.PREPARING)
    monkeypatch.setattr(operator, "wants", asked.append)
    with pytest.raises(Stuck, match="still is preparing, not diskless"):
        operator.becomes(migration.DISKLESS, seen.append)
    assert not asked
    assert set(seen) == {migration.PREPARING}
