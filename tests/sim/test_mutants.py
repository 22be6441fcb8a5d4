"""A mutant changes one decision of the sources as they are, and nothing on disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anabranch.sim.mutants import Mutant, MutantError, changed

NEXT = Mutant(
    name="next-offset",
    rule="the next offset follows the last",
    module="anabranch.core.controller.image",
    old="return Offset(self.offset + 1)",
    new="return Offset(self.offset + 2)",
    seed=0,
    caught_by="M5",
)
SHOW = """
from anabranch.sim.mutants import Mutant, plant
import anabranch.core.controller.image as sound
plant(Mutant(**{fields!r}))
import anabranch.core.controller.image as mutant
print(sound.EMPTY.next_offset, mutant.EMPTY.next_offset)
"""


def test_a_planted_mutant_runs_instead_of_the_source():
    fields = {name: getattr(NEXT, name) for name in Mutant.__dataclass_fields__}
    shown = subprocess.run(
        [sys.executable, "-c", SHOW.format(fields=fields)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout.split() == ["0", "1"]


@pytest.mark.parametrize("source", ["", NEXT.old * 2])
def test_a_mutant_that_does_not_fit_its_module_is_an_error(source):
    with pytest.raises(MutantError, match="not once"):
        changed(source, NEXT)
