"""The three clients as group members: what each library calls the verbs of `Member`."""

from __future__ import annotations

import asyncio
import contextlib

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from aiokafka.errors import CommitFailedError as AioCommitFailed
from aiokafka.errors import KafkaError as AioError
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError, KafkaConnectionError
from kafka.errors import KafkaError as PythonError
from tests.clients.adapters import SECONDS, Refused
from tests.clients.members import COMMIT_FAILED, NO_CONNECTION, POLL_SECONDS, Member, until

AUTO_COMMIT_NEVER_MS = 5000


def pairs(partitions):
    return frozenset((each.topic, each.partition) for each in partitions)


@contextlib.contextmanager
def refusals(errors, failed=()):
    """A library's errors as Refused."""
    try:
        yield
    except failed as fault:
        raise Refused(COMMIT_FAILED, str(fault)) from fault
    except KafkaConnectionError as fault:
        raise Refused(NO_CONNECTION, str(fault)) from fault
    except errors as fault:
        raise Refused(getattr(fault, "errno", None) or -1, str(fault)) from fault


class ConfluentMember(Member):
    """confluent-kafka. Its callbacks run inside poll and close."""

    name = "confluent-kafka"
    strategies = ("range", "roundrobin", "cooperative-sticky")

    def open(self):
        asked = self.options
        commits = asked["auto_commit_ms"]
        settings = {
            "bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0,
            "client.id": self.client_id, "session.timeout.ms": asked["session_ms"],
            "heartbeat.interval.ms": asked["heartbeat_ms"], "auto.offset.reset": asked["reset"],
            "partition.assignment.strategy": ",".join(asked["strategy"]),
            "max.poll.interval.ms": max(asked["max_poll_ms"], asked["session_ms"]),
            "enable.auto.commit": commits is not None,
            "auto.commit.interval.ms": commits or AUTO_COMMIT_NEVER_MS,
            "topic.metadata.refresh.interval.ms": 300, "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
            "coordinator.query.interval.ms": 200, "retry.backoff.ms": 50,
        }  # fmt: skip
        if asked["instance"]:
            settings["group.instance.id"] = asked["instance"]
        self.consumer = confluent_kafka.Consumer(settings)
        topics = [asked["pattern"]] if asked["pattern"] else self.topics
        if asked["assign"]:
            self.consumer.assign([self._at(each) for each in asked["assign"]])
        else:
            self.consumer.subscribe(
                topics,
                on_assign=lambda _, which: self.changed("assigned", pairs(which)),
                on_revoke=lambda _, which: self.changed("revoked", pairs(which)),
                on_lost=lambda _, which: self.changed("lost", pairs(which)),
            )

    def _at(self, partition, offset=confluent_kafka.OFFSET_STORED, metadata=""):
        if not metadata:  # given an empty one, it commits a zero byte
            return confluent_kafka.TopicPartition(*partition, offset)
        return confluent_kafka.TopicPartition(*partition, offset, metadata)

    def poll(self):
        for each in self.consumer.consume(500, POLL_SECONDS):
            if each.error() is None:
                self.took(each.topic(), each.partition(), each.offset(), each.value())
            else:
                self.faults.append(Refused(each.error().code(), each.error().str()))

    def close(self, crashed):
        if not crashed:
            self.consumer.close()
        self.consumer = None

    def do_commit(self, offsets, wait):
        which = [self._at(each, *value) for each, value in offsets.items()]
        with self._refusals():
            for each in self.consumer.commit(offsets=which, asynchronous=not wait) or ():
                if each.error is not None:
                    raise Refused(each.error.code(), each.error.str())

    @contextlib.contextmanager
    def _refusals(self):
        try:
            yield
        except confluent_kafka.KafkaException as fault:
            raise Refused(fault.args[0].code(), fault.args[0].str()) from fault

    def do_committed(self, partitions):
        with self._refusals():
            found = self.consumer.committed([self._at(each) for each in partitions], SECONDS)
        return {
            (each.topic, each.partition): (each.offset, each.metadata or "")
            if each.offset >= 0
            else None
            for each in found
        }

    def do_pause(self, partitions):
        self.consumer.pause([self._at(each) for each in partitions])

    def do_resume(self, partitions):
        self.consumer.resume([self._at(each) for each in partitions])

    def do_seek(self, partition, offset):
        self.consumer.seek(self._at(partition, offset))

    def do_at_time(self, partition, timestamp):
        (found,) = self.consumer.offsets_for_times([self._at(partition, timestamp)], SECONDS)
        return None if found.offset < 0 else found.offset

    def do_lag(self, partition):
        _, end = self.consumer.get_watermark_offsets(self._at(partition), SECONDS)
        return end - self.next.get(partition, 0)


class PythonMember(Member, kafka.ConsumerRebalanceListener):
    """kafka-python. Its callbacks run in a thread of the library's."""

    name = "kafka-python"
    poll_ms = 100
    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")
    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def open(self):
        asked = self.options
        commits = asked["auto_commit_ms"]
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, client_id=self.client_id,
            group_instance_id=asked["instance"], session_timeout_ms=asked["session_ms"],
            heartbeat_interval_ms=asked["heartbeat_ms"], auto_offset_reset=asked["reset"],
            partition_assignment_strategy=[self.assignors[each] for each in asked["strategy"]],
            max_poll_interval_ms=asked["max_poll_ms"], enable_auto_commit=commits is not None,
            auto_commit_interval_ms=commits or AUTO_COMMIT_NEVER_MS, metadata_max_age_ms=300,
            fetch_max_wait_ms=100, reconnect_backoff_ms=20, reconnect_backoff_max_ms=100,
            retry_backoff_ms=50, metrics_enabled=False,
        )  # fmt: skip
        if asked["assign"]:
            self.consumer.assign([kafka.TopicPartition(*each) for each in asked["assign"]])
        elif asked["pattern"]:
            self.consumer.subscribe(pattern=asked["pattern"], listener=self)
        else:
            self.consumer.subscribe(self.topics, listener=self)
            # A leader that knows no partitions yet assigns none; Kafka sees the same of it.
            for topic in self.topics:
                until(lambda topic=topic: self.consumer.partitions_for_topic(topic), topic)

    def on_partitions_assigned(self, assigned):
        self.changed("assigned", pairs(assigned))

    def on_partitions_revoked(self, revoked):
        self.changed("revoked", pairs(revoked))

    def on_partitions_lost(self, lost):
        self.changed("lost", pairs(lost))

    def poll(self):
        try:
            came = self.consumer.poll(timeout_ms=self.poll_ms)
        except KafkaConnectionError:
            return  # the library tells the application, which goes on
        except PythonError as fault:
            with refusals(PythonError):
                raise fault
        for which, records in came.items():
            for each in records:
                self.took(which.topic, which.partition, each.offset, each.value)

    def close(self, crashed):
        if self.consumer is None:
            return
        with contextlib.suppress(PythonError):
            self.consumer.close(autocommit=not crashed, timeout_ms=100 if crashed else None)

    def do_commit(self, offsets, wait):
        which = {
            kafka.TopicPartition(*each): kafka.OffsetAndMetadata(offset, metadata, -1)
            for each, (offset, metadata) in offsets.items()
        }
        with refusals(PythonError, CommitFailedError):
            if wait:
                self.consumer.commit(which, timeout_ms=SECONDS * 1000)
            else:
                self.consumer.commit_async(which)

    def do_committed(self, partitions):
        found = {}
        for each in partitions:
            with refusals(PythonError):
                at = kafka.TopicPartition(*each)
                value = self.consumer.committed(at, metadata=True, timeout_ms=SECONDS * 1000)
            found[each] = None if value is None else (value.offset, value.metadata)
        return found

    def do_pause(self, partitions):
        self.consumer.pause(*[kafka.TopicPartition(*each) for each in partitions])

    def do_resume(self, partitions):
        self.consumer.resume(*[kafka.TopicPartition(*each) for each in partitions])

    def do_seek(self, partition, offset):
        self.consumer.seek(kafka.TopicPartition(*partition), offset)

    def do_at_time(self, partition, timestamp):
        at = kafka.TopicPartition(*partition)
        found = self.consumer.offsets_for_times({at: timestamp})[at]
        return None if found is None else found.offset

    def do_lag(self, partition):
        at = kafka.TopicPartition(*partition)
        return self.consumer.end_offsets([at])[at] - self.next.get(partition, 0)


class AioMember(Member, aiokafka.ConsumerRebalanceListener):
    """aiokafka, in an event loop of its own that runs only between and in the thread's steps."""

    name = "aiokafka"
    strategies = ("range", "roundrobin", "sticky")
    assignors = {"range": AioRange, "roundrobin": AioRobin, "sticky": AioSticky}

    def open(self):
        self.runner = asyncio.Runner()
        self.runner.run(self._open())

    async def _open(self):
        asked = self.options
        commits = asked["auto_commit_ms"]
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, client_id=self.client_id,
            group_instance_id=asked["instance"], session_timeout_ms=asked["session_ms"],
            heartbeat_interval_ms=asked["heartbeat_ms"], auto_offset_reset=asked["reset"],
            partition_assignment_strategy=[self.assignors[each] for each in asked["strategy"]],
            max_poll_interval_ms=asked["max_poll_ms"], enable_auto_commit=commits is not None,
            auto_commit_interval_ms=commits or AUTO_COMMIT_NEVER_MS, metadata_max_age_ms=300,
            fetch_max_wait_ms=100, retry_backoff_ms=50,
        )  # fmt: skip
        if asked["assign"]:
            self.consumer.assign([aiokafka.TopicPartition(*each) for each in asked["assign"]])
        elif asked["pattern"]:
            self.consumer.subscribe(pattern=asked["pattern"], listener=self)
        else:
            self.consumer.subscribe(self.topics, listener=self)
        await self.consumer.start()

    async def on_partitions_assigned(self, assigned):
        self.changed("assigned", pairs(assigned))

    async def on_partitions_revoked(self, revoked):
        self.changed("revoked", pairs(revoked))

    def poll(self):
        self.runner.run(self._poll())

    async def _poll(self):
        with refusals(AioError):
            came = await self.consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        for which, records in came.items():
            for each in records:
                self.took(which.topic, which.partition, each.offset, each.value)

    def rest(self):
        """The library's own tasks go on while the application does not poll."""
        self.runner.run(asyncio.sleep(POLL_SECONDS))

    def crash(self):
        """The library would try for ever: its tasks end with the member."""
        super().crash()
        loop = self.runner.get_loop()
        with contextlib.suppress(RuntimeError):  # it is closed already
            loop.call_soon_threadsafe(lambda: [each.cancel() for each in asyncio.all_tasks(loop)])

    def close(self, crashed):
        with contextlib.suppress(AioError):
            if not crashed:
                self.runner.run(self.consumer.stop())
        self.consumer._closed = True
        self.runner.close()

    def do_commit(self, offsets, wait):
        which = {aiokafka.TopicPartition(*each): value for each, value in offsets.items()}
        with refusals(AioError, AioCommitFailed):
            self.runner.run(self._commit(which, wait))

    async def _commit(self, which, wait):
        if wait:
            await self.consumer.commit(which)
        else:
            self.begun = asyncio.create_task(self.consumer.commit(which))

    def do_committed(self, partitions):
        return self.runner.run(self._committed(partitions))

    async def _committed(self, partitions):
        found = {}
        for each in partitions:
            at = aiokafka.TopicPartition(*each)
            with refusals(AioError):
                offset = await self.consumer.committed(at)
            metadata = "" if offset is None else await self._metadata(at)
            found[each] = None if offset is None else (offset, metadata)
        return found

    async def _metadata(self, at):
        """aiokafka's consumer returns no metadata; what it fetched has it."""
        fetched = await self.consumer._coordinator.fetch_committed_offsets([at])
        return fetched[at].metadata

    def do_pause(self, partitions):
        self.runner.run(self._pause(self.consumer.pause, partitions))

    def do_resume(self, partitions):
        self.runner.run(self._pause(self.consumer.resume, partitions))

    async def _pause(self, verb, partitions):
        verb(*[aiokafka.TopicPartition(*each) for each in partitions])

    def do_seek(self, partition, offset):
        self.consumer.seek(aiokafka.TopicPartition(*partition), offset)

    def do_at_time(self, partition, timestamp):
        at = aiokafka.TopicPartition(*partition)
        found = self.runner.run(self.consumer.offsets_for_times({at: timestamp}))[at]
        return None if found is None else found.offset

    def do_lag(self, partition):
        at = aiokafka.TopicPartition(*partition)
        end = self.runner.run(self.consumer.end_offsets([at]))[at]
        return end - self.next.get(partition, 0)


MEMBERS = (ConfluentMember, AioMember, PythonMember)
