"""This project's Python as one archive, for executors that do not have it installed.

Rule kept: only Python is shipped. What is compiled (pyarrow, numpy, numba, msgspec …) comes from
the Python of the executors; requirements.py names what is missing there.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
import zipimport
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("anabranch", "pyspark_anabranch")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive: the same files give the same archive."""


def package_archive(cache: Path) -> Path:
    """An archive of the project's packages in `cache`, made anew when a file has changed; where
    this process runs from such an archive, as with `--py-files`, that one."""
    loader: object = getattr(find_spec(PACKAGES[0]), "loader", None)
    if isinstance(loader, zipimport.zipimporter):
        return Path(loader.archive)
    files = sorted(_files())
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode() + b"\0" + path.read_bytes())
    archive = cache / f"anabranch-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        part = tempfile.NamedTemporaryFile(dir=cache, suffix=".part", delete=False)  # noqa: SIM115
        with part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as made:
            for name, path in files:
                made.writestr(zipfile.ZipInfo(name, EPOCH), path.read_bytes())
        Path(part.name).replace(archive)
    return archive


def _files() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
        found += [
            (str(path.relative_to(root.parent)), path)
            for path in root.rglob("*")
            if path.suffix == ".py" or path.name == "py.typed"
        ]
    return found
