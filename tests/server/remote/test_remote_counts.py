"""What remote logs count, and the samples that it becomes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.remote.local_log import CopyLag
from anabranch.core.remote.rounds import Done
from anabranch.server.metrics import BY_NAME, samples_of_remote_logs
from anabranch.server.remote.remote_counts import (
    DELETED,
    SAMPLES,
    IdleShare,
    RemoteCounts,
    RemoteStatistics,
    TopicSizes,
)


def test_an_attempt_counts_and_its_error_too():
    counts = RemoteCounts()
    with counts.attempt("t", "copy"):
        pass
    with pytest.raises(StorageFault), counts.attempt("t", "copy"):
        raise StorageFault("away")
    assert counts.totals == {"t": {"copy_requests": 2, "copy_errors": 1}}


def test_counts_of_topics_that_went_are_forgotten_and_those_of_deletions_stay():
    counts = RemoteCounts()
    for topic in ("t", "u", DELETED):
        counts.add(topic, "delete_requests")
        counts.computation_ms[topic] = 1
    counts.keep({"u"})
    assert counts.totals.keys() == {"u", DELETED}
    assert counts.computation_ms.keys() == {"u"}


def test_idleness_is_that_of_the_last_minute():
    idle = IdleShare()
    assert idle.value == 1
    for _ in range(5):
        idle.sample(4, 4)
    assert idle.value == 0
    idle.sample(9, 4)  # the limit was lowered meanwhile
    assert idle.value == 0
    for _ in range(SAMPLES):
        idle.sample(1, 4)
    assert idle.value == 0.75


def test_sizes_are_summed_over_a_topics_partitions():
    done = Done(CopyLag(2, 30), 100, 1, None, CopyLag(1, 7), 9)
    sizes = TopicSizes(computation_ms=3).with_(done).with_(done)
    assert sizes == TopicSizes(CopyLag(4, 60), CopyLag(2, 14), 18, 200, 3)


def replica(topic, *, has_remote, began=0, failed=0):
    return SimpleNamespace(
        topic_partition=SimpleNamespace(topic=topic),
        log=SimpleNamespace(config=SimpleNamespace(has_remote=has_remote)),
        began_remotely=began,
        failed_remotely=failed,
    )


def test_every_topic_with_a_remote_log_has_all_series():
    found = RemoteStatistics(
        {"t": {"copy_bytes": 5, "fetch_errors": 2}, DELETED: {"delete_requests": 4}},
        {"t": TopicSizes(CopyLag(4, 60), CopyLag(2, 14), 18, 200, 3)},
        0.5, 0.25, 6, 7, 80,
    )  # fmt: skip
    replicas = [
        replica("t", has_remote=True, began=2, failed=1),
        replica("t", has_remote=True, began=1),
        replica("quiet", has_remote=True),
        replica("classic", has_remote=False),
    ]
    samples = list(samples_of_remote_logs(found, replicas))
    told = {(name, *labels): value for name, labels, value in samples}
    assert len(told) == len(samples)
    prefix = "kafka_server_brokertopicmetrics_"
    assert {labels for _, labels, _ in samples} == {(), ("t",), ("quiet",), (DELETED,)}
    assert told[prefix + "remotecopybytes_total", "t"] == 5
    assert told[prefix + "remotecopybytes_total", "quiet"] == 0
    assert told[prefix + "remotefetcherrors_total", "t"] == 2
    assert told[prefix + "remotedeleterequests_total", DELETED] == 4
    assert told[prefix + "remotecopylagbytes", "t"] == 60
    assert told[prefix + "remotecopylagsegments", "t"] == 4
    assert told[prefix + "remotedeletelagbytes", "t"] == 14
    assert told[prefix + "remotedeletelagsegments", "t"] == 2
    assert told[prefix + "remotelogmetadatacount", "t"] == 18
    assert told[prefix + "remotelogsizebytes", "t"] == 200
    assert told[prefix + "remotelogsizecomputationtime", "t"] == 3
    assert told[prefix + "buildremotelogauxstaterequests_total", "t"] == 3
    assert told[prefix + "buildremotelogauxstateerrors_total", "t"] == 1
    assert told["kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",] == 0.5
    assert told["kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",] == (7, 80)
    for name, labels, _ in samples:
        assert len(BY_NAME[name].labels) == len(labels), name


def test_nothing_is_told_where_remote_logs_are_off():
    assert list(samples_of_remote_logs(None, [replica("t", has_remote=True)])) == []
