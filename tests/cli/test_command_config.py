"""`--command-config`: how the command line's connections are secured, as with Kafka's tools."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main


def run(*words, **more):
    return CliRunner().invoke(main, ["topics", "list", *words], **more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS", "security.protocol must be one of PLAINTEXT, SSL"),
        ("sasl.mechansim=PLAIN", "sasl.mechansim is unknown. Correct its name"),
        ("security.protocol=SASL_SSL", "sasl.mechanism must be one of PLAIN"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere.pem", "/nowhere.pem"),
        ("a=\\u12", "is no properties file in UTF-8"),
    ],
)
def test_what_cannot_be_is_told_with_the_file_and_without_secrets(tmp_path, text, said):
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.jaas.config=hunter2;\n{text}\n")
    done = run("--command-config", str(path))
    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert said in told
    assert str(path) in told.replace(" ", "")
    assert "hunter2" not in done.output


def test_a_missing_file_is_told(tmp_path):
    done = run("--command-config", str(tmp_path / "none"))
    assert (done.exit_code, "No such file or directory." in done.output) == (2, True)


def test_the_environment_may_name_the_file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSH")
    done = run(env={"ANABRANCH_COMMAND_CONFIG": str(path)})
    assert "security.protocol must be one of" in " ".join(done.output.split())
