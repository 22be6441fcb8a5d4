"""librdkafka's own cases, without librdkafka: what is edited, what is missing, what counts."""

from __future__ import annotations

import json
import subprocess

import pytest

CALL = "\033[0m\033[36m[{name:28s}/  1.000s] {text}\033[0m"


@pytest.fixture
def suite():
    """`compat.families.librdkafka_suite`."""
    import compat.families.librdkafka_suite as found  # noqa: PLC0415

    return found


@pytest.fixture
def built():
    """`compat.clients.librdkafka_tests`."""
    import compat.clients.librdkafka_tests as found  # noqa: PLC0415

    return found


def report(**states):
    return json.dumps({"tests": {name: {"state": state} for name, state in states.items()}})


def said(name, *texts):
    return "".join(CALL.format(name=name, text=text) + "\n" for text in texts)


def test_only_a_case_that_says_so_has_passed(suite):
    first, second, third, fourth = suite.CASES
    printed = f'\033[31m### Test "{third}" failed at test.c:7: ###\nno such thing\n'
    found = suite.outcomes(report(**{first: "PASSED", second: "SKIPPED", third: "FAILED"}), printed)
    assert [found[name]["state"] for name in suite.CASES] == [
        "PASSED", "SKIPPED", "FAILED", "not run",
    ]  # fmt: skip
    assert found[third]["why"].endswith("no such thing")
    assert found[fourth]["why"] == ""


@pytest.mark.parametrize("state", ["SKIPPED", "FAILED", "not run"])
def test_a_row_with_such_a_case_fails(suite, monkeypatch, state):
    from contextlib import nullcontext  # noqa: PLC0415

    case = {"state": state, "why": "", "passed": 0, "left out": []}
    monkeypatch.setattr(suite, "secured", lambda _peer, **_settings: nullcontext())
    monkeypatch.setattr(suite, "cases", lambda _here, _way: {"0109": case})
    with pytest.raises(suite.Failed, match=f"PLAIN: 0109 {state}"):
        suite.passes_librdkafkas_tests(None)


def test_parts_are_counted_and_those_left_out_are_named(suite):
    first, second, *_ = suite.CASES
    printed = said(
        first,
        "[ do_test_a:1: with b: PASS (0.10s) ]",
        "[ do_test_a:1: with c: PASS (0.10s) ]",
        "[ do_test_d:9: e: SKIP: not here ]",
        "Skipping what is long",
    ) + said(second, "[ Test f: PASS ]")
    found = suite.outcomes(report(), printed)
    assert (found[first]["passed"], found[second]["passed"]) == (2, 1)
    assert found[first]["left out"] == ["do_test_d not here", "Skipping what is long"]


def test_a_case_answers_no_to_one_question(built, tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text("if (test_needs_auth()) return;")
    built.answer_no(source)
    assert source.read_text() == "if (false) return;"
    with pytest.raises(SystemExit, match=r"a\.cpp does not ask"):
        built.answer_no(source)


def test_missing_headers_are_named(built, monkeypatch):
    missing = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(built.subprocess, "run", lambda *_words, **_options: missing)
    with pytest.raises(SystemExit, match="headers of OpenSSL"):
        built.needs_openssl()
