"""librdkafka's own tests, built from its source in the npm package node-rdkafka.

Three cases ask whether the listener is a secured one, and then leave out all that needs
`kafka-acls.sh`, as it would not know how to log in. The script that the rows give them does know,
so that question is answered with "no" in the copy that is built. Nothing else is changed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat.clients import CACHE, NODE_RDKAFKA, needs, once, run

NAME = "librdkafka-tests"
PROGRAM = CACHE / NAME / "tests" / "test-runner"
LIBRARIES = (CACHE / NAME / "src", CACHE / NAME / "src-cpp")
EDITED = ("0109-auto_create_topics.cpp", "0115-producer_auth.cpp", "0119-consumer_auth.cpp")
QUESTION = "test_needs_auth()"
OPTIONS = (
    "--enable-ssl", "--disable-curl", "--disable-gssapi", "--disable-zstd", "--disable-lz4-ext",
    "--disable-optimization", "--disable-debug-symbols",
)  # fmt: skip
"""What the cases do without is left out; without optimization the build takes half as long."""
TARGETS = (("src", "lib"), ("src-cpp", "lib"), ("tests", "test-runner"))


def fetch_librdkafka_tests() -> None:
    """Build the program that runs the cases, once; it is kept."""
    once(NAME, " ".join((NODE_RDKAFKA, *OPTIONS, *EDITED)), _build)


def _build(folder: Path) -> None:
    needs("npm", "tar", "gcc", "g++", "make")
    needs_openssl()
    run(["npm", "pack", "--silent", f"node-rdkafka@{NODE_RDKAFKA}"], folder)
    package = folder / f"node-rdkafka-{NODE_RDKAFKA}.tgz"
    run(["tar", "xzf", package, "--strip-components=3", "package/deps/librdkafka"], folder)
    package.unlink()
    for name in EDITED:
        answer_no(folder / "tests" / name)
    run(["./configure", *OPTIONS], folder)
    for part, target in TARGETS:
        run(["make", "-C", part, target], folder)


def needs_openssl() -> None:
    """End with a sentence where the C compiler does not find OpenSSL's headers."""
    done = subprocess.run(
        ["gcc", "-E", "-"], input="#include <openssl/ssl.h>\n", capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit("the headers of OpenSSL are not installed (Debian: libssl-dev)")


def answer_no(source: Path) -> None:
    """Answer the question of a case with "no"; `SystemExit` where it does not ask just once."""
    text = source.read_text()
    if text.count(QUESTION) != 1:
        raise SystemExit(f"{source.name} does not ask {QUESTION} once")
    source.write_text(text.replace(QUESTION, "false"))
