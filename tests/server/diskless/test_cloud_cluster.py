"""A broker whose diskless records lie in a cloud's store: written, read from there, verified.

S3 is moto's server, or the one that ANABRANCH_TEST_S3 names; Google Cloud Storage is the one that
ANABRANCH_TEST_GCS names (`compat/real_s3.py`, `compat/real_gcs.py`). The order is in SQLite, and in
PostgreSQL, as it is where a store in a cloud is used.
"""

from __future__ import annotations

import itertools
import json
import os

import pytest
from bench.s3_moto import s3_endpoint
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from anabranch.cli.main import main
from anabranch.testing import ClusterError, LocalCluster

SECONDS = 30.0
SECRET = "hush-hush-hush"
PREFIXES = (f"p{number}" for number in itertools.count())
"""One for each cluster: a store belongs to the first that uses it."""


@pytest.fixture(scope="module")
def s3():
    if real := os.environ.get("ANABRANCH_TEST_S3"):
        yield real
        return
    with s3_endpoint() as endpoint:
        yield endpoint


def google(bucket="bucket"):
    endpoint = os.environ.get("ANABRANCH_TEST_GCS")
    if not endpoint:
        pytest.skip("no Google Cloud Storage server runs here; `scripts/compat gcs` starts one")
    return f"gs://{bucket}/{next(PREFIXES)}?base_url={endpoint}&bearer_token={SECRET}"


@pytest.fixture(params=["s3", "gs"])
def url_of(request):
    if request.param == "gs":
        google()
        return google
    keys = f"region=us-east-1&access_key_id=an-id&secret_access_key={SECRET}"
    endpoint = request.getfixturevalue("s3")
    return lambda bucket="bucket": f"s3://{bucket}/{next(PREFIXES)}?endpoint={endpoint}&{keys}"


@pytest.fixture(params=["sqlite", "postgresql"])
def coordinator(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/diskless.db"
    return str(request.getfixturevalue("postgres").new_database())


def cluster(url, folder, **changed):
    config = {"diskless.storage.url": url, "diskless.produce.commit.interval.ms": 20, **changed}
    return LocalCluster(brokers=1, folder=folder, config=config)


def test_records_lie_in_the_store_and_are_read_from_there(url_of, coordinator, tmp_path):
    url = url_of()
    for life in range(2):  # the second one reads what the first one wrote: nothing is cached
        with cluster(url, tmp_path, **{"diskless.coordinator.url": coordinator}) as running:
            servers = {"bootstrap.servers": running.bootstrap_servers, "log_level": 0}
            admin = AdminClient(servers)
            if not life:
                topic = NewTopic("t", 1, config={"diskless.enable": "true"})
                admin.create_topics([topic])["t"].result(SECONDS)
                writes = Producer(servers)
                for number in range(100):
                    writes.produce("t", b"%d" % number, partition=0)
                assert writes.flush(SECONDS) == 0
            consumer = Consumer({**servers, "group.id": "none"})
            consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
            found = [message.value() for message in consumer.consume(100, SECONDS)]
            consumer.close()
            assert found == [b"%d" % number for number in range(100)]
            resource = ConfigResource(ResourceType.BROKER, "1")
            (described,) = admin.describe_configs([resource]).values()
            assert SECRET not in repr([str(each) for each in described.result(SECONDS).values()])
    done = CliRunner().invoke(
        main,
        ["diskless", "verify", "--whole", "--json", "--storage-url", url,
         "--coordinator-url", coordinator],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["objects"] >= 1 and SECRET not in done.output


def test_a_missing_bucket_ends_the_start_with_a_sentence(url_of, tmp_path):
    with pytest.raises(ClusterError, match="there is no such bucket") as raised:
        cluster(url_of("none"), tmp_path).start()
    assert SECRET not in str(raised.value)


def test_missing_rights_end_the_start_with_a_sentence(tmp_path):
    with pytest.raises(ClusterError, match=r"refused \(403\); check the keys.*may read") as raised:
        cluster(google("locked"), tmp_path).start()
    assert SECRET not in str(raised.value)
