"""The site's search finds each how-to by the words that an operator uses, and decisions last."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST_OR_SECOND = {
    "operate/access-control": ("acl",),
    "operate/closest-replica": ("closest replica", "follower fetching", "client.rack"),
    "operate/connect-java": ("java", "connect from java", "java client"),
    "operate/deploy": ("docker", "kubernetes", "docker compose", "systemd", "helm"),
    "operate/diskless-minio": ("diskless minio", "diskless on minio", "s3 minio"),
    "operate/exactly-once": ("exactly once", "exactly-once", "transactions python"),
    "operate/from-kafka": ("migrate from kafka",),
    "operate/full-disk": ("disk full", "full disk", "no space left"),
    "operate/make-diskless": ("make topic diskless", "diskless existing topic", "migrate topic to diskless"),
    "operate/metadata-backup": ("backup metadata", "back up and restore metadata", "restore backup"),
    "operate/move-cluster": ("move cluster", "move a kafka cluster", "migrate kafka cluster", "mirrormaker 2"),
    "operate/move-replicas": ("move replicas", "drain broker", "cordon"),
    "operate/quotas": ("quotas",),
    "operate/remote-log": ("remote storage", "tiered storage", "remote log"),
    "operate/replace-broker": ("replace broker", "dead broker", "broker died", "drain broker"),
    "operate/replication-factor": ("replication factor", "grow replication factor", "more replicas"),
    "operate/retention": ("retention", "delete old records", "how long are records kept"),
    "operate/secure-a-cluster": ("secure a cluster", "secure cluster", "tls", "sasl", "scram", "certificate authority"),
    "operate/upgrade": ("upgrade", "rolling upgrade", "new version"),
    "operate/watch": ("consumer lag", "watch consumer lag", "metrics", "grafana", "prometheus"),
    "pipelines/compaction": ("compaction", "compacted topic", "log compaction"),
    "pipelines/mirror": ("mirror",),
}  # fmt: skip
QUERIES = sorted({query for queries in FIRST_OR_SECOND.values() for query in queries})


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[str]]:
    """The pages that each query finds in the site as it is built now, best first."""
    if not shutil.which("node"):
        pytest.skip("node, which runs the site's search, is not there")
    site = tmp_path_factory.mktemp("site")
    subprocess.run([ROOT / "scripts" / "venv", "docs"], check=True)
    subprocess.run(
        [".venv-docs/bin/mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    asked = subprocess.run(
        ["node", ROOT / "tests" / "pages" / "search.mjs", site, *QUERIES],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in asked.stdout.splitlines()]
    return dict(zip(QUERIES, answers, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("page", FIRST_OR_SECOND)
def test_a_how_to_is_found_first_or_second(page, found):
    for query in FIRST_OR_SECOND[page]:
        first = [each.partition(".html")[0] for each in found[query][:2]]
        assert page in first, query


@pytest.mark.slow
def test_decisions_are_found_last(found):
    for query, pages in found.items():
        kinds = [page.startswith("decisions/") for page in pages if "/mutants." not in page]
        assert kinds == sorted(kinds), query
