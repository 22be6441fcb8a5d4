"""Every public setting, verb, metric, error and skipped feature has its sentence in the docs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reference():
    """The generator of the reference pages."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES_THAT_BEGIN_SENTENCES = {"acks"}


def is_sentence(text: str) -> bool:
    """Begins like one (or with a figure or a name), ends like one, and is not one word."""
    first, _, rest = text.partition(" ")
    is_name = "." in first or first in NAMES_THAT_BEGIN_SENTENCES
    begins = is_name or first[:1].isupper() or first[:1].isdigit()
    return bool(begins and rest and text.rstrip().endswith("."))


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_every_setting_has_its_sentence(reference, kind):
    settings = reference.settings_of(kind)
    silent = [
        name
        for name, setting in settings.items()
        if reference.is_public(setting) and not is_sentence(setting.sentence)
    ]
    assert settings
    assert not silent
    text = reference.settings_page()
    assert all(f"`{n}`" in text for n, s in settings.items() if reference.is_public(s))


def test_every_verb_has_a_sentence_and_an_example(reference):
    verbs = reference.verbs()
    assert verbs
    silent = [name for name, verb in verbs.items() if not is_sentence((verb.help or "").strip())]
    assert not silent, f"no sentence in --help: {silent}"
    no_example = [name for name, verb in verbs.items() if "Example" not in (verb.epilog or "")]
    assert not no_example, f"no example in --help: {no_example}"


def test_every_option_of_every_verb_says_what_it_is(reference):
    silent = [
        f"{name} {parameter.opts[0]}"
        for name, verb in reference.verbs().items()
        for parameter in verb.params
        if parameter.param_type_name == "option" and not parameter.help and not parameter.hidden
    ]
    assert not silent


def commands_in_the_pages() -> list[tuple[str, list[str]]]:
    """Every `$ anabranch …` line of README and docs: where it stands, and its words."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for page in pages:
        for line in page.read_text().splitlines():
            match = re.match(r"\$ (?:\.venv/bin/)?anabranch (.*)", line)
            if match:
                found.append((page.name, match.group(1).partition("#")[0].split()))
    return found


def test_the_commands_in_the_pages_exist(reference):
    verbs = reference.verbs()
    commands = commands_in_the_pages()
    assert commands
    for page, words in commands:
        name = " ".join(words[:2]) if " ".join(words[:2]) in verbs else words[0]
        assert name in verbs, f"{page}: {words}"
        options = {each for parameter in verbs[name].params for each in parameter.opts}
        strangers = {word for word in words if word.startswith("--")} - options
        assert not strangers, f"{page}: {name} has no {strangers}"


def test_every_metric_has_its_sentence(reference):
    metrics = [*reference.metrics(), *reference.metrics("core.mirror.exported")]
    assert metrics
    assert not [name for name, _, sentence in metrics if not is_sentence(sentence)]


def test_every_error_has_its_sentence(reference):
    errors = importlib.import_module("anabranch.core.errors")
    assert set(errors.ERRORS) == set(errors.ErrorCode)
    silent = [code.name for code, info in errors.ERRORS.items() if not is_sentence(info.sentence)]
    assert not silent


def test_every_skipped_feature_is_in_the_ledger(reference):
    text = reference.ledger_page()
    assert all(reference.cell(sentence) in text for _, sentence in reference.skipped())
    unserved = importlib.import_module("anabranch.core.api.unserved").UNSERVED
    assert not [name for name in unserved.values() if name not in text]


def test_every_page_can_be_made(reference, tmp_path):
    reference.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(reference.PAGES)


def test_each_generated_page_is_what_the_code_says(reference):
    """They lie in the repository, so that each link of a checkout leads somewhere."""
    stale = [
        name
        for name, make in reference.PAGES.items()
        if (reference.REFERENCE / name).read_text(encoding="utf-8") != make()
    ]
    assert stale == [], "write them again: .venv/bin/python scripts/reference.py"


LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def test_each_link_of_a_page_leads_to_a_file_of_the_checkout():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md",
             *sorted((ROOT / "docs").rglob("*.md"))]  # fmt: skip
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert dead == []
