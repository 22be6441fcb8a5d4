"""R15: the corpus of fuzzing and everything that once broke a rule, run again; and a short round.

The modules are not instrumented here, so nothing is reached or kept: only the rules are checked.
"""

from __future__ import annotations

from random import Random

import pytest
from fuzz.table import TARGETS

from fuzz import havoc, store

NEW_INPUTS = {"stream": 120, "log": 60, "folder": 60, "decode": 400, "config": 20, "login": 60}
REGRESSIONS = store.regressions()


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_breaks_no_rule(name):
    target = TARGETS[name]
    entries = [*target.seeds(), *store.read(store.CORPUS / f"{name}.b64")]
    assert entries, "the corpus is in the repository"
    for entry in entries:
        target.run(entry)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_once_broke_a_rule_does_not_again(name):
    target, entry = REGRESSIONS[name]
    TARGETS[target].run(entry)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_from_a_seed_break_no_rule(name):
    target, rng = TARGETS[name], Random(1)
    entries = [target.make(rng) for _ in range(NEW_INPUTS[name] // 4)]
    for _ in range(NEW_INPUTS[name]):
        entry = target.change(rng, rng.choice(entries), rng.choice(entries))
        target.run(entry)
        entries.append(entry)


def test_the_corpus_is_small():
    size = sum(path.stat().st_size for path in store.CORPUS.glob("*.b64"))
    assert size < 500_000


def test_an_input_is_one_whatever_it_is_made_of():
    rng = Random(2)
    for target in TARGETS.values():
        for entry in (b"", b"\0", rng.randbytes(40), havoc.change(rng, target.make(rng))):
            target.run(entry)
            assert b"".join(target.parts(entry)) is not None
            assert target.steps(entry) >= 0
