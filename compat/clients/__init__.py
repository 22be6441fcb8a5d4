"""The clients of the table that are not Kafka's own tools: where they come from.

Each is fetched once, by the ordinary installer of its kind and at the version named here, into a
folder of `.cache/clients`; what this folder holds are the small programs that are run with them.
Nothing here talks to a broker.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import confluent_kafka
from bench.servers import ROOT

HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache" / "clients"
KAFKAJS = "2.2.4"
KAFKA_PYTHON = "2.0.2"
"""Of 2020, and still what many programs pin. It asks in old versions only."""
NODE_RDKAFKA = "3.6.1"
LIBRDKAFKA = "2.12.0"
"""What that release of node-rdkafka carries, with its tests."""
SPARK = "4.2.0"
VERSITYGW = "v1.8.0"
FAKE_GCS = "v1.56.1"
MARK = "fetched-version"
"""The file that says which version a folder holds."""
FETCH_SECONDS = 900.0

KCAT_PACKAGES = ("kcat", "librdkafka1", "libyajl2")
"""Debian's packages that make a kcat run without being installed; the C library is there."""


def needs(*programs: str) -> None:
    """End with a sentence where one of the programs is not on the machine."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"{', '.join(missing)} not installed")


def run(command: Sequence[object], folder: Path) -> None:
    """Run an installer in `folder`; where it fails, its first error is the reason."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS,
        check=False,
    )
    if done.returncode:
        words = (done.stderr + done.stdout).strip().splitlines()
        telling = [line for line in words if "rror" in line.lower()] or words or ["no word"]
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {telling[0]}")


def once(name: str, version: str, fill: Callable[[Path], None]) -> Path:
    """The folder of a client; `fill` fills it where this version has not been fetched yet.

    The version is written last, so that a folder filled by half is filled again.
    """
    folder = CACHE / name
    if not is_fetched(name, version):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fill(folder)
        (folder / MARK).write_text(version)
    return folder


def is_fetched(name: str, version: str) -> bool:
    """Whether the folder of a client holds this version, whole."""
    mark = CACHE / name / MARK
    return mark.exists() and mark.read_text() == version


def fetch_kcat() -> None:
    """Unpack Debian's kcat where none is on the PATH; no root is needed."""
    if shutil.which("kcat") is None:
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise SystemExit("kcat is not installed")
        once("kcat", "debian", _unpack_kcat)


def _unpack_kcat(folder: Path) -> None:
    run(["apt-get", "download", *KCAT_PACKAGES], folder)
    for package in sorted(folder.glob("*.deb")):
        run(["dpkg-deb", "--extract", package, folder], folder)


def kcat_command() -> tuple[list[str], dict[str, str]]:
    """How to run kcat: its words and its environment."""
    found = shutil.which("kcat")
    if found:
        return [found], dict(os.environ)
    libraries = {str(each.parent) for each in (CACHE / "kcat").rglob("librdkafka.so*")}
    path = ":".join(sorted(libraries))
    return [str(CACHE / "kcat" / "usr" / "bin" / "kcat")], {**os.environ, "LD_LIBRARY_PATH": path}


def fetch_kafka_python() -> None:
    """Install an old kafka-python into an environment of its own: tests use a later one."""
    once("kafka-python", KAFKA_PYTHON, _install_kafka_python)


def _install_kafka_python(folder: Path) -> None:
    run([sys.executable, "-m", "venv", folder / "venv"], folder)
    pip = folder / "venv" / "bin" / "pip"
    run([pip, "install", "--quiet", f"kafka-python=={KAFKA_PYTHON}"], folder)


def kafka_python() -> Path:
    """The Python that has it."""
    return CACHE / "kafka-python" / "venv" / "bin" / "python"


def fetch_kafkajs() -> None:
    """Install kafkajs with npm."""
    needs("node", "npm")
    words = ("install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund")
    once(
        "kafkajs",
        KAFKAJS,
        lambda folder: run(["npm", *words, "--prefix", folder, f"kafkajs@{KAFKAJS}"], folder),
    )


def fetch_maven_jars(name: str) -> Path:
    """Copy the jars of `<name>.pom.xml` beside this file; the folder that they are in."""
    needs("java", "mvn")
    pom = HERE / f"{name}.pom.xml"
    copy = ("--quiet", "--batch-mode", "-Dstyle.color=never", "--file", pom)
    return once(
        name,
        pom.read_text(),
        lambda folder: run(
            ["mvn", *copy, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], folder
        ),
    )


def compile_word_count(jars: Path) -> Path:
    """Compile `WordCount.java`, for programs that start it often; the folder of its classes."""
    needs("javac")
    source = HERE / "WordCount.java"
    compiler = ["javac", "-proc:none", "-cp", f"{jars}/*"]
    return once(
        "word-count",
        word_count_version(),
        lambda folder: run([*compiler, "-d", folder, source], folder),
    )


def word_count_version() -> str:
    """What the classes depend on: the program, and the jars that it is compiled against."""
    return (HERE / "WordCount.java").read_text() + (HERE / "streams.pom.xml").read_text()


def fetch_spark() -> None:
    """Install PySpark into an environment of its own, and Spark's Kafka connector by Maven."""
    fetch_maven_jars("spark-kafka")
    once("spark", SPARK, _install_spark)


def _install_spark(folder: Path) -> None:
    run([sys.executable, "-m", "venv", folder / "venv"], folder)
    run([folder / "venv" / "bin" / "pip", "install", "--quiet", f"pyspark=={SPARK}"], folder)


def fetch_franz() -> None:
    """Build the program of franz-go with Go's own module client."""
    build_go("franz")


def fetch_versitygw() -> None:
    """Build versitygw, an S3 server, with Go's own module client."""
    needs("go")
    package = f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"
    build = ["env", f"GOBIN={CACHE / 'versitygw'}", "go", "install", package]
    once("versitygw", VERSITYGW, lambda folder: run(build, folder))


def fetch_fake_gcs() -> None:
    """Build fake-gcs-server, a server of Google Cloud Storage's protocol, in the same way."""
    needs("go")
    package = f"github.com/fsouza/fake-gcs-server@{FAKE_GCS}"
    build = ["env", f"GOBIN={CACHE / 'fake-gcs-server'}", "go", "install", package]
    once("fake-gcs-server", FAKE_GCS, lambda folder: run(build, folder))


def fetch_sarama() -> None:
    """Build the program of sarama in the same way."""
    build_go("sarama")


def build_go(name: str) -> None:
    """Build the program in the folder of this name."""
    needs("go")
    source = HERE / name
    files = [source / "go.mod", *sorted(source.glob("*.go"))]
    version = "".join(each.read_text() for each in files)
    once(name, version, lambda folder: run(["go", "build", "-o", folder / name, "."], source))


def go_version(name: str, module: str) -> str:
    """The version of a module in the go.mod of a program."""
    found = re.search(rf"{module} v(\S+)", (HERE / name / "go.mod").read_text())
    assert found is not None, f"go.mod has no {module}"
    return found.group(1)


def versions() -> dict[str, str]:
    """The clients and their versions, as they are fetched; kcat's is what it says of itself."""
    return {
        "kcat": kcat_version(),
        "kafkajs": KAFKAJS,
        "kafka-python": f"{KAFKA_PYTHON} and {metadata.version('kafka-python')}",
        "franz-go": go_version("franz", "twmb/franz-go"),
        "sarama": go_version("sarama", "IBM/sarama"),
        "librdkafka's own tests": f"{LIBRDKAFKA} (of node-rdkafka {NODE_RDKAFKA})",
        "confluent-kafka": confluent_kafka.__version__,
        "Kafka Streams": pom_version("streams", "kafka-streams"),
        "Kafka Connect": pom_version("connect", "connect-runtime"),
        "Spark's Kafka connector": pom_version("spark-kafka", "spark-sql-kafka-0-10_2.13"),
    }


def pom_version(name: str, artifact: str) -> str:
    """The version of an artifact in `<name>.pom.xml`."""
    pattern = rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)</version>"
    found = re.search(pattern, (HERE / f"{name}.pom.xml").read_text())
    assert found is not None, f"{name}.pom.xml has no {artifact}"
    return found.group(1)


def kcat_version() -> str:
    """kcat's version and its librdkafka's."""
    command, environment = kcat_command()
    try:
        done = subprocess.run([*command, "-V"], env=environment, capture_output=True, text=True)
    except OSError:
        return "not here"
    found = re.search(r"Version ([\d.]+) .*?librdkafka ([\d.]+)", done.stdout)
    return f"{found.group(1)} (librdkafka {found.group(2)})" if found else "unknown"
