"""Where the pipelines keep what can be made again: compiled code, and the script that runs Java."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """A folder for what can be made again: the user's cache, else one in the temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for folder in (Path(base) / "anabranch", Path(tempfile.gettempdir()) / _own_name()):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="anabranch-"))


def _own_name() -> str:
    return f"anabranch-{os.getuid()}"


def set_numba_folder() -> None:
    """Name the folder of numba's compiled code, unless it is named: numba's own choice lies beside
    the package, where the user who runs a job may not be allowed to write."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(cache_folder() / "numba")
