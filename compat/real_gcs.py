"""Diskless storage on a Google Cloud Storage server: the stores' common suite, brokers, garbage.

What: the server of `gcs_gateway.py` on loopback; against it the tests of `tests/stores/objects` for
any store and of `tests/server/diskless/test_cloud_cluster.py`, whose tests of this cloud are
skipped where ANABRANCH_TEST_GCS names no server. Why not a row of the table: Apache Kafka has
nothing to compare it with.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.servers import ROOT

from compat.clients import fetch_fake_gcs
from compat.gcs_gateway import BUCKET, Gateway

SUITES = {
    "tests/stores/objects/test_objects.py": "gs",
    "tests/server/diskless/test_garbage_collector.py": "gs",
    "tests/server/diskless/test_cloud_cluster.py": "gs or rights",
}
"""Files of tests, and which of them."""


def main() -> int:
    """0 when everything passes."""
    fetch_fake_gcs()
    gateway = Gateway()
    passes = True
    try:
        gateway.start()
        store = f"gs://{BUCKET}/PREFIX?base_url={gateway.endpoint}&bearer_token=hush-hush-hush"
        environment = {
            **os.environ,
            "ANABRANCH_TEST_GCS": gateway.endpoint,
            "ANABRANCH_TEST_STORES": store,
        }
        for path, chosen in SUITES.items():
            command = [sys.executable, "-m", "pytest", "-q", "-n", "0", path, "-k", chosen]
            done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
            passes &= not done.returncode
    finally:
        gateway.stop()
    said = "passes" if passes else "FAILS"
    sys.stdout.write(f"diskless storage on a Google Cloud Storage server {said}\n")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
