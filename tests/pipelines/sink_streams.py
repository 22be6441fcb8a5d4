"""A stream of files into a topic, slow enough to be killed; run as a program, it is a driver.

    python -m tests.pipelines.sink_streams FOLDER BOOTSTRAP TOPIC [OPTION=TEXT …]

A micro-batch is a file, whose lines are numbers of its own thousand, 200 bytes each.
"""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, TopicPartition

LINES = 1000
ROWS_AT_ONCE = 20
FILES = 3


def write_files(folder):
    """The stream's files, in the order of their times."""
    (folder / "files").mkdir()
    for number in range(FILES):
        lines = range(number * LINES, (number + 1) * LINES)
        path = folder / "files" / f"{number}.txt"
        path.write_text("".join(f"{line:0200d}\n" for line in lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def start(spark, folder, bootstrap, topic, *, pause_seconds, **options):
    """Start the stream on what its checkpoint does not have yet."""

    def slowly(batches):
        for batch in batches:
            time.sleep(pause_seconds)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_AT_ONCE))
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(f"{folder}/files")
    return (
        lines.mapInArrow(slowly, "value string")
        .writeStream.format("anabranch")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("kafka.batch.size", "500")
        .option("kafka.max.request.size", "65536")
        .option("kafka.buffer.memory", "65536")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


def lines_of(bootstrap, topic, *, least=0, seconds=120, reads=True):
    """How often the topic has each line, when it has `least` records, if it is to be read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "streams"})
    partition = TopicPartition(topic, 0, 0)
    deadline = time.monotonic() + seconds
    while (end := consumer.get_watermark_offsets(partition, 20)[1]) < least:
        assert time.monotonic() < deadline, f"{end} of {least} records came"
        time.sleep(0.02)
    if not reads:
        consumer.close()
        return {}
    consumer.assign([partition])
    found = {}
    for _ in range(end):
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        found[int(message.value())] = found.get(int(message.value()), 0) + 1
    consumer.close()
    return found


if __name__ == "__main__":
    from anabranch.pipelines.session import local_session

    session, options = local_session("killed", cores=1), dict(x.split("=") for x in sys.argv[4:])
    start(session, *sys.argv[1:4], pause_seconds=0.05, **options).awaitTermination()
