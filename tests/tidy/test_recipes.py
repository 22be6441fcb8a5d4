"""The recipes of CONTRIBUTING.md: the files that they name are all that must change, and a file
that is forgotten is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.tidy import forgotten
from tests.tidy.newcomer import ADDITIONS, NAMED_INSTEAD, WORKS, Edit

ROOT = Path(__file__).resolve().parents[2]
OMISSIONS = [
    [path for path in paths if path is not None]
    for paths in zip_longest(*(list(edits) for edits in ADDITIONS.values()))
]
"""Of each recipe one file at a time."""
CONVENTIONS = (
    "tests/tidy/test_api_files.py",
    "tests/tidy/test_shape.py",
    "tests/tidy/test_reference.py",
    "tests/core/settings/test_ledger.py",
)
THEIR_NEEDS = ("tests/tidy/conftest.py",)
ASKED_OF_ALL = (
    "header or skipped or number or name or says_what or docstring or sentence or in_force"
)


def named_files(recipe: str) -> list[str]:
    """The files that a recipe names, as patterns."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paragraphs = text.split(f"**{recipe}**", 1)[1].split("\n\n**", 1)[0]
    found = re.findall(r"`(src/anabranch/[\w/<>.]+\.py)`", paragraphs)
    return [re.sub(r"<\w+>|NN", r"\\w+", re.escape(each)) for each in found]


def edited(path: Path, edit: Edit) -> None:
    if isinstance(edit, str):
        path.write_text(edit)
        return
    text = path.read_text()
    for old, new in edit:
        assert text.count(old) == 1, (
            f"fit the newcomer's edit of {path.name} to the source: {old!r}"
        )
        text = text.replace(old, new)
    path.write_text(text)


def run(copy: Path, *command: str) -> str:
    """What a Python prints that imports the copy."""
    environment = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sources with an addition by each recipe."""
    copy = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(ROOT / "src" / "anabranch", copy / "src" / "anabranch")
    for edits in ADDITIONS.values():
        for path, edit in edits.items():
            edited(copy / path, edit)
    yield copy
    shutil.rmtree(copy)


@pytest.mark.parametrize("recipe", ADDITIONS)
def test_a_recipe_names_every_file_of_its_addition(recipe: str) -> None:
    patterns = named_files(recipe)
    for path in ADDITIONS[recipe]:
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path


@pytest.mark.parametrize("find", forgotten.RECIPES.values(), ids=lambda find: find.__name__)
def test_nothing_is_forgotten(find) -> None:
    assert list(find()) == []


def test_what_the_recipes_add_works(copy: Path) -> None:
    assert run(copy, "-c", WORKS) == "all work\n"
    assert run(copy, str(ROOT / "tests/tidy/forgotten.py")) == ""


@pytest.mark.timeout(900)
def test_what_the_recipes_add_passes_the_tests_of_all_code(copy: Path) -> None:
    """The headers, docstrings, sentences and settings that they ask of every file."""
    for place in ("pyproject.toml", "scripts", "docs", "README.md", *CONVENTIONS, *THEIR_NEEDS):
        there = copy / place
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, there)
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / place, there)
    tests = [str(copy / place) for place in CONVENTIONS]
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(copy), "-k", ASKED_OF_ALL)
    said = run(copy, "-m", "pytest", *options, *tests)
    assert re.search(r"^\d+ passed", said, re.M), said
    assert "failed" not in said and "error" not in said, said


@pytest.mark.parametrize("paths", OMISSIONS, ids=lambda paths: Path(paths[0]).stem)
def test_a_file_that_is_forgotten_is_named(copy: Path, paths: list[str]) -> None:
    whole = {path: (copy / path).read_text() for path in paths}
    try:
        for path in paths:
            if (ROOT / path).exists():
                shutil.copy(ROOT / path, copy / path)
            else:
                (copy / path).unlink()
        said = run(copy, str(ROOT / "tests/tidy/forgotten.py")).splitlines()
    finally:
        for path, text in whole.items():
            (copy / path).write_text(text)
    for path in paths:
        place = NAMED_INSTEAD.get(path, path)
        assert [line for line in said if line.startswith(place)], (path, said)
    assert len(said) == len(paths), said


def test_every_file_that_the_recipes_name_is_there():
    """Names with a part to fill in (`<name>`, NAME, NN) and what runs leave behind are left out."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(
        re.findall(r"`((?:src|tests|docs|scripts|chaos|bench|compat|fuzz)/[\w./-]+)`", text)
    )
    real = {each for each in named if not re.search(r"NAME|NN|TARGET", each)}
    assert len(real) > 40
    assert not sorted(each for each in real if not (ROOT / each).exists())
