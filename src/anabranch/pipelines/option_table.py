"""Every option of the source: what works, what is accepted without effect, what is refused.

The names are those of Spark's Kafka source 4.x and of Kafka's consumer; those of TLS and SASL are
in security_options.py. Why a table: a job that
changes one word must learn of every option whether it still means something, and the page
`docs/pipelines/source.md` is held to these lists by a test.
"""

from __future__ import annotations

EFFECTIVE = (
    "kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "startingOffsetsByTimestamp", "startingTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "failOnDataLoss",
    "minPartitions", "maxRecordsPerPartition", "includeHeaders", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "kafka.client.id", "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes", "kafka.fetch.max.wait.ms",
    "kafka.default.api.timeout.ms", "shape", "failOnCorruption", "maxBytesPerPartition",
)  # fmt: skip
"""Options that do something here; the last three are ours."""

NO_GROUP = "the source joins no group and commits no offsets: the checkpoint has them"
ONE_CLIENT = "the source's own client decides this by itself"

WITHOUT_EFFECT = {
    "groupIdPrefix": NO_GROUP,
    **dict.fromkeys(
        (
            "kafka.group.id", "kafka.group.instance.id", "kafka.group.protocol",
            "kafka.group.remote.assignor", "kafka.auto.commit.interval.ms",
            "kafka.heartbeat.interval.ms", "kafka.session.timeout.ms",
            "kafka.max.poll.interval.ms", "kafka.partition.assignment.strategy",
            "kafka.share.acknowledgement.mode",
        ),
        NO_GROUP,
    ),
    **dict.fromkeys(
        (
            "kafka.allow.auto.create.topics", "kafka.client.dns.lookup", "kafka.client.rack",
            "kafka.connections.max.idle.ms", "kafka.exclude.internal.topics",
            "kafka.fetch.min.bytes", "kafka.max.poll.records", "kafka.metadata.max.age.ms",
            "kafka.metadata.recovery.strategy",
            "kafka.metadata.recovery.rebootstrap.trigger.ms", "kafka.receive.buffer.bytes",
            "kafka.reconnect.backoff.max.ms", "kafka.reconnect.backoff.ms",
            "kafka.request.timeout.ms", "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms",
            "kafka.send.buffer.bytes", "kafka.socket.connection.setup.timeout.max.ms",
            "kafka.socket.connection.setup.timeout.ms",
        ),
        ONE_CLIENT,
    ),
    "kafka.check.crcs": "checksums are always checked; see failOnCorruption",
    **dict.fromkeys(
        (
            "kafka.auto.include.jmx.reporter", "kafka.enable.metrics.push",
            "kafka.metric.reporters", "kafka.metrics.num.samples",
            "kafka.metrics.recording.level", "kafka.metrics.sample.window.ms",
        ),
        "the source's client keeps no metrics of its own",
    ),
}  # fmt: skip
"""Options that a job may keep, and why they change nothing."""

REFUSED = {
    "group.id": "the source joins no group; Spark's source refuses it, too",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.config.providers": "values are not looked up: give the value itself",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "the source runs no Java",
    "kafka.key.deserializer": "keys are bytes; cast the column",
    "kafka.value.deserializer": "values are bytes; cast the column",
}
"""Options that would change what the job means, and what to do instead; most of them Spark's source
refuses too."""

ONLY_IN_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
