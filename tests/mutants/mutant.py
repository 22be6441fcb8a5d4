"""Broken rules on purpose: one production line changed, and a checker that knows nothing of it.

What: a mutant names a module, a piece of its source and what stands there instead; `plant` makes
the next import of that module run the changed source. Why: a simulator that finds nothing proves
nothing; each mutant shows that a decision is watched. Rule kept: the file on disk is never touched,
no bytecode of a mutant is kept, and the piece must occur exactly once, so that a mutant that no
longer fits its module is an error and not a silent pass. The mutants are in the modules beside this
one, by the room of the code that they change; `table.py` joins them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "anabranch"
NO_SCHEDULE = -1
"""Instead of a seed: a test catches the mutant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed decision. `seed` is of a schedule that catches it, `caught_by` the check's id;
    where the seed is NO_SCHEDULE, `caught_by` is the test that catches it."""

    name: str
    rule: str
    """The rule that is broken, in a sentence."""
    module: str
    old: str
    new: str
    seed: int
    caught_by: str


class MutantError(Exception):
    """The mutant does not fit the module that it names."""


class _Loader(SourceFileLoader):
    """Loads a module's source with one piece replaced."""

    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def path_stats(self, path: str) -> Any:
        """There is no bytecode of this source: it is compiled each time."""
        raise OSError(path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        """Compile the changed source."""
        source = bytes(data).decode()
        return super().source_to_code(changed(source, self._mutant), path, _optimize=_optimize)


class _Finder(MetaPathFinder):
    """Finds the mutant's module before anybody else does."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec with our loader; None for every other module."""
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise MutantError(f"{self._mutant.name}: there is no module {fullname}")
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


def changed(source: str, mutant: Mutant) -> str:
    """The module's source with the mutant in it.

    Raises MutantError unless the piece occurs exactly once.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise MutantError(
            f"{mutant.name}: its piece of {mutant.module} occurs {count} times, not once; "
            "fit it to the source in tests/mutants"
        )
    return source.replace(mutant.old, mutant.new)


def plant(mutant: Mutant) -> None:
    """Forget every module of this package, and load them with the mutant from now on.

    For a process of its own: objects made before belong to the sound modules.
    """
    for name in [each for each in sys.modules if each.split(".")[0] == PACKAGE]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(mutant))
