"""Install each extra of the package alone, and run the commands of its page.

What: an environment of its own for each extra in a temporary folder, with the locked versions, and
a broker of one `anabranch up` in it. Rule kept: the commands are those of the documentation, run by
the environment of the extra alone; a server that a command needs (PostgreSQL, S3) comes from the
project's environment. Exits with 1 if a command fails; its output is then shown.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-spark.lock")
SECONDS = 300
FLIGHTS = '{"carrier":"AA","delay":1.5}\n{"carrier":"UA","delay":2}\n'

READ_AND_WRITE = """
from anabranch.pipelines.session import local_session

spark = local_session()
place = {"kafka.bootstrap.servers": "BOOTSTRAP"}
source = spark.read.format("anabranch").options(**place, subscribe="flights")
sink = source.load().selectExpr("key", "value").write.format("anabranch").mode("append")
sink.options(**place, topic="flights").save()
assert source.load().count() == 4
"""


class Place:
    """An environment with one extra, a folder for it, and a broker."""

    def __init__(self, folder: Path, extras: str) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.bootstrap = ""
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pins = folder / "versions.txt"
        pins.write_text("".join(map(pinned, LOCKS)))
        wanted = f"{ROOT}[{extras}]" if extras else str(ROOT)
        self.run("pip", "install", "--quiet", "--constraint", str(pins), wanted)

    def run(self, *words: str, given: str = "") -> str:
        """A command of the environment; its output. Exits when it fails."""
        env = {**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", "PYTHONPATH": ""}
        env.pop("JAVA_HOME", None)
        command = [str(self.bin / words[0]), *words[1:]]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=SECONDS, env=env,
            cwd=self.folder,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def anabranch(self, *words: str, given: str = "") -> str:
        """`anabranch` for the broker."""
        return self.run("anabranch", *words, "--bootstrap-server", self.bootstrap, given=given)

    @contextmanager
    def broker(self, *settings: str) -> Iterator[None]:
        """One broker with these settings, and a topic with two records."""
        words = [str(self.bin / "anabranch"), "up", "--dir", str(self.folder / "data"), "--json"]
        words += ["--port", "0", *(word for each in settings for word in ("--set", each))]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{' '.join(words)}: did not start")
            self.bootstrap = json.loads(line)["bootstrap_servers"]
            self.anabranch("topics", "create", "--topic", "flights")
            self.anabranch("produce", "--topic", "flights", given=FLIGHTS)
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)


def pinned(lock: str) -> str:
    """The versions of a lock without their hashes, which pip wants of all or of none."""
    lines = (ROOT / lock).read_text().splitlines(keepends=True)
    return "".join(re.sub(r" *\\$", "", line) for line in lines if re.match(r"[a-z0-9].*==", line))


def base(place: Place, _servers: ExitStack) -> None:
    """The quick start's commands."""
    with place.broker():
        assert "UA" in place.anabranch(
            "consume", "--topic", "flights", "--from-beginning", "--max-messages", "2"
        )
        place.anabranch("cluster", "status")


def postgres(place: Place, servers: ExitStack) -> None:
    """The metadata and the diskless coordinator in PostgreSQL."""
    from tests.stores.postgres_kit import PostgresServer

    server = PostgresServer().start()
    servers.callback(server.remove)
    url = server.url("postgres")
    with place.broker(f"metadata.store.url={url}", f"diskless.coordinator.url={url}"):
        diskless(place)


def cloud(place: Place, servers: ExitStack) -> None:
    """Diskless topics on S3."""
    from bench.s3_moto import s3_endpoint
    from bench.s3_server import BUCKET

    endpoint = servers.enter_context(s3_endpoint())
    url = f"s3://{BUCKET}/a?region=us-east-1&endpoint={endpoint}"
    with place.broker(f"diskless.storage.url={url}&access_key_id=any&secret_access_key=any"):
        diskless(place)


def diskless(place: Place) -> None:
    """Records of a diskless topic come back."""
    place.anabranch("topics", "create", "--topic", "d", "--config", "diskless.enable=true")
    place.anabranch("produce", "--topic", "d", given=FLIGHTS)
    assert "UA" in place.anabranch(
        "consume", "--topic", "d", "--from-beginning", "--max-messages", "2"
    )


def spark(place: Place, _servers: ExitStack) -> None:
    """The source, the sink and a scrub."""
    with place.broker():
        (place.folder / "job.py").write_text(READ_AND_WRITE.replace("BOOTSTRAP", place.bootstrap))
        place.run("python", "job.py")
        assert "equal" in place.anabranch("spark", "scrub", "--topic", "flights")


def delta(place: Place, _servers: ExitStack) -> None:
    """A table."""
    schema = "carrier string, delay double"
    with place.broker():
        words = ("spark", "tables", "--topic", "flights", "--table", "./flights")
        assert "2 row" in place.anabranch(*words, "--schema", schema)


def demo(place: Place, _servers: ExitStack) -> None:
    """The demo without Spark."""
    place.run("anabranch", "demo", "--no-spark")


EXTRAS: dict[str, tuple[str, Callable[[Place, ExitStack], None]]] = {
    "base": ("", base),
    "postgres": ("postgres", postgres),
    "cloud": ("cloud", cloud),
    "spark": ("spark,jvm", spark),
    "delta": ("spark,delta,jvm", delta),
    "demo": ("demo", demo),
}


def main(names: list[str]) -> None:
    """Try the extras with these names, or all."""
    unknown = set(names) - EXTRAS.keys()
    if unknown:
        sys.exit(f"extras: {', '.join(unknown)} is not known; there are: {', '.join(EXTRAS)}.")
    for name in names or EXTRAS:
        extras, work = EXTRAS[name]
        folder = Path(tempfile.mkdtemp(prefix=f"anabranch-{name}-"))
        try:
            with ExitStack() as servers:
                work(Place(folder, extras), servers)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.write(f"{name}: its commands work\n")


if __name__ == "__main__":
    main(sys.argv[1:])
