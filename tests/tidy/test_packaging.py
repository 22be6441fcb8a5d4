"""Compose file and manifests: their settings are settings, and a node would start with them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from anabranch.server.config import load_config

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
COMPOSE = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
TEXT = (PACKAGING / "kubernetes" / "anabranch.yaml").read_text()
MANIFESTS = list(yaml.safe_load_all(TEXT))
NODES = [each for each in COMPOSE["services"] if each.startswith("node-")]


def settings(words: list[str]) -> list[str]:
    """What `--set` gives among the words of a command."""
    found = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
    return found + [words[at + 1] for at, word in enumerate(words) if word == "--set"]


def loaded(given: list[str], tmp_path: Path):
    """The configuration of a node with these settings; a folder of the test stands for its own."""
    own = [each for each in given if not each.startswith("log.dirs=")]
    config = load_config(None, [*own, f"log.dirs={tmp_path}"])
    assert config.warnings == (), "an unknown setting"
    return config


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_the_compose_file_would_start(name, tmp_path):
    service = COMPOSE["services"][name]
    script = service["entrypoint"][2].replace("$$@", "")
    config = loaded(settings([*service["command"], *shlex.split(script)]), tmp_path)
    number = int(name.removeprefix("node-"))
    assert config.node_id == number
    assert service["ports"] == [f"127.0.0.1:{9091 + number}:9092"]


def test_a_node_of_the_manifests_would_start(tmp_path):
    stateful = next(each for each in MANIFESTS if each["kind"] == "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    script = container["command"][2].replace("\\\n", " ")
    for name, value in {"$((number + 1))": "2", "$number": "1", "$POD": "anabranch-1",
                        "$NAMESPACE": "default", "${ZONE:-rack-1}": "rack-1"}.items():  # fmt: skip
        script = script.replace(name, value)
    config = loaded([*settings(shlex.split(script.partition("exec ")[2])), secret()], tmp_path)
    assert (config.node_id, config.rack) == (2, "rack-1")
    ports = {each["name"] for each in container["ports"]}
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    assert {container[each]["httpGet"]["port"] for each in probes} <= ports


def secret() -> str:
    """The setting that the command at the head of the manifests puts in a secret."""
    return re.search(r"store\.properties='(.+)'", TEXT)[1]


def test_what_the_manifests_name_is_there():
    """Selectors, services, ports, volumes: a name that nothing has is no error for Kubernetes."""
    stateful = next(each for each in MANIFESTS if each["kind"] == "StatefulSet")
    services = {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == "Service"}
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    constraints = pod["spec"]["topologySpreadConstraints"]
    (budget,) = (each for each in MANIFESTS if each["kind"] == "PodDisruptionBudget")
    selectors = [
        *(each["spec"]["selector"] for each in services.values()),
        *(each["labelSelector"]["matchLabels"] for each in constraints),
        *(each["spec"]["selector"]["matchLabels"] for each in (stateful, budget)),
    ]
    assert all(each.items() <= labels.items() for each in selectors)
    assert stateful["spec"]["serviceName"] in services
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for service in services.values():
        assert {
            each["name"]: each["port"] for each in service["spec"]["ports"]
        }.items() <= ports.items()
    volumes = [*pod["spec"]["volumes"], *(
        each["metadata"] for each in stateful["spec"]["volumeClaimTemplates"]
    )]  # fmt: skip
    mounts = {each["name"] for each in container["volumeMounts"]}
    assert mounts == {each["name"] for each in volumes}
    said = container["command"][2]
    (folder,) = (
        mount["mountPath"]
        for mount in container["volumeMounts"]
        for volume in pod["spec"]["volumes"]
        if "secret" in volume and volume["name"] == mount["name"]
    )
    assert f"--config {folder}/store.properties" in said and secret()
    servers = re.search(r"quorum\.bootstrap\.servers=(\S+)", said)[1].split(",")
    name, count = stateful["metadata"]["name"], stateful["spec"]["replicas"]
    port = ports["controller"]
    assert servers == [f"{name}-{n}.{name}:{port}" for n in range(count)]


def test_what_the_compose_file_names_is_there():
    volumes = set(COMPOSE["volumes"])
    for name, service in COMPOSE["services"].items():
        assert {each.partition(":")[0] for each in service.get("volumes", ())} <= volumes, name
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"]), name
    build = COMPOSE["services"]["node-1"]["build"]
    assert (PACKAGING / build["context"] / build["dockerfile"]).is_file()


def test_the_unit_waits_for_the_node_and_gives_it_little():
    unit = (PACKAGING / "anabranch@.service").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert given["Type"] == "notify"
    assert given["ProtectSystem"] == "strict" and given["CapabilityBoundingSet"] == ""


def test_what_runs_in_a_container_is_the_command():
    text = (PACKAGING / "Containerfile").read_text()
    assert 'ENTRYPOINT ["anabranch"]' in text
