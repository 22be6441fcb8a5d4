"""The harness is imported as `python -m compat` from the root imports it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]
