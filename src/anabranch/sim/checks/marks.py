"""What has to happen somewhere in a campaign, or its faults and clients find too little.

A mark is counted when the thing that it names was seen. Rule kept: a mark is a fact about a run,
never a judgement. Source: the `sometimes` assertions of FoundationDB and Antithesis.
"""

from __future__ import annotations

from collections import Counter

MARKS: dict[str, str] = {
    "unclean-election": "a replica leads that was not known to have everything",
    "last-known-leader": "the last leader leads again after all in-sync replicas crashed",
    "elr-election": "an eligible leader replica was elected while nobody was in sync (KIP-966)",
    "clean-failover": "an in-sync replica took over from a leader that is gone",
    "preferred-election": "the leadership moved back to the first replica",
    "leaderless": "a partition had no leader",
    "isr-shrink": "a replica left the ISR",
    "isr-shrink-to-1": "only the leader was left in sync",
    "isr-expansion": "a replica joined the ISR",
    "recovered-leader": "a leader after an unclean election said that it has recovered",
    "broker-fenced": "a broker was fenced",
    "broker-returned": "a broker registered again",
    "controlled-shutdown": "a broker left in order",
    "controller-failover": "another controller took over",
    "controller-deposed": "a controller was active after another had taken the lease",
    "unknown-append": "a controller could not learn whether the store had committed",
    "store-went-back": "a node found the metadata store older than what it had seen, and stopped",
    "suspend-and-crash": "a machine stood still with its clock, in a run with a crash",
    "clock-jump-and-crash": "a node's steady clock jumped ahead, in a run with a crash",
    "clock-drift-and-crash": "a node's steady clock ran fast or slow, in a run with a crash",
    "store-back-and-crash": "the metadata store went back, in a run with a crash",
    "store-late-and-crash": "the metadata store's answers were late, in a run with a crash",
    "min-isr-changed": "min.insync.replicas was changed while the topic was in use",
    "zombie-leader": "a leader was alive when another one was elected",
    "truncation": "a follower cut records that its leader does not have",
    "restart-at-leader-start": "a follower dropped its log and began at the leader's start",
    "power-cut-lost-tail": "a power cut took records that were not synced",
    "lost-by-rule": "a committed record was lost, and a rule allows it",
    "high-watermark-behind": "a new leader knew less than was committed",
    "records-deleted": "the start of a log moved",
    "replica-offline": "a partition's folder or log failed",
    "wiped": "a broker came back with an empty disk",
    "full-and-crashed": "a broker ended while a folder of it was full",
    "room-again": "a full folder had room again while its process ran",
    "folder-failed-alone": "a folder failed, and others of the broker worked",
    "started-without-folder": "a process did without a folder from its start",
    "paused-leader": "a leader stood still",
    "acked-on-few": "acks=1 was answered, and the record is gone",
    "retried-and-acknowledged": "a record was sent more than once and acknowledged",
    "not-enough-replicas": "a write was refused because too few replicas are in sync",
    "not-leader": "a write was refused by a broker that does not lead",
    "request-timed-out": "an acknowledgement took too long",
    "out-of-order-sequence": "a producer's batch was refused because one before it is missing",
    "reader-truncated": "a reader found that what it had read was truncated",
    "offsets-expired": "a committed offset was gone when its retention was over, beside crashes",
    "coordinator-moved": "a group's members found another coordinator",
    "rebalanced": "a group went on in a new generation",
    "metadata-snapshot-loaded": "a node was so far behind that it loaded a metadata snapshot",
    "metadata-snapshot-cut-short": "a process ended while it wrote or fetched a metadata snapshot",
    "metadata-log-trimmed": "a node let go of metadata log that its snapshots hold",
    "metadata-copy-lost-its-end": "a power cut took the newest batches of a copy of the metadata",
    "twin-refused": "a process on a copy of a living broker's folders was refused, beside crashes",
    "twin-took-over": "a process on a copied folder took the place of a broker, beside crashes",
    "older-copy": "a broker came back on an older copy of its folders, beside crashes",
    "unreachable-address": "a broker was fenced whose address leads nowhere, beside crashes",
    "folder-told": "a folder failed, and the metadata count on it no longer, beside crashes",
    "shutdown-interrupted": "a process ended in the middle of its controlled shutdown",
    "observer-read": "an observer served a reader",
    "compacted": "a pass of compaction ended, near a crash",
    "crash-while-compacting": "a process ended in the middle of a pass of compaction",
    "crash-with-rolled-segments": "a process ended while a log had several segments",
    "crash-after-idle-roll": "a process ended while a log's last segment of several was empty",
    "records-expired": "retention dropped segments",
    "partitions-added": "a topic got more partitions, near a crash",
    "replicas-moved": "a move of replicas ended, near a crash",
    "crash-while-moving": "a process ended while replicas moved",
    "move-cancelled": "a move of replicas was taken back, near a crash",
    "topic-deleted": "a topic was deleted, near a crash",
    "topic-made-again": "a topic got the name of one that was deleted",
    "replication-factor-changed": "a move ended with more or fewer replicas than it began with",
    "diskless-commit-asked": "a broker asked what became of a commit",
    "diskless-commit-refused": "the coordinator refused an object",
    "diskless-duplicate": "a batch came again, and the coordinator knew it",
    "diskless-idle-producer": "a producer that the coordinator had forgotten went on",
    "diskless-orphan-collected": "an object that was never committed was deleted",
    "transaction-unknown": "nobody knows whether a transaction is committed",
    "transaction-timed-out": "a coordinator aborted a transaction that was late",
    "zombie-fenced": "a process was refused because another one has its transactional id",
    "marker-gone-while-away": "a replica came back, and compaction had taken a marker meanwhile",
    "transaction-copied-again": "a replica that came back copied a transaction's records again",
    "group-committed-in-transaction": "a group's offsets were committed in a transaction",
    "diskless-put-lost": "a put of an object got lost, in a run with a crash",
    "diskless-put-unanswered": "a put was done and not answered, in a run with a crash",
    "diskless-put-late": "a put was done after its broker was told nothing, beside crashes",
    "diskless-commit-lost": "a commit got lost, in a run with a crash",
    "diskless-commit-unanswered": "a commit was done and not answered, in a run with a crash",
    "diskless-commit-late": "a commit was done after its broker was told nothing, beside crashes",
    "diskless-objects-away-for-minutes": "the store was away for over a minute, beside crashes",
    "diskless-coordinator-away-for-minutes": "the coordinator was away for so long, beside crashes",
    "diskless-clock-jump": "the coordinator's clock jumped, in a run with a crash",
    "diskless-died-after-put": "a broker died between put and commit",
    "diskless-slept-after-put": "a broker slept there until the lease was over, beside crashes",
    "diskless-two-writers": "a process that was thought to be dead wrote on under its id",
    "producers-forgotten": "a log forgot a producer that had not written for long",
    "producers-forgotten-and-crash": "a log forgot a producer, in a run with a crash",
    "records-expired-and-crash": "retention dropped segments, in a run with a crash",
    "folder-failed-alone-and-crash": "a folder failed alone, in a run with a crash",
    "topic-made-again-and-crash": "a topic was made again, in a run with a crash",
    "replication-factor-changed-and-crash": "a move changed how many replicas, beside crashes",
}
"""Name -> what was seen. A campaign of enough schedules must hit every one."""

RARE: dict[str, str] = {
    "missing-replica-filled": "a replica that no broker had was given to one, near a crash",
    "not-enough-replicas-after-append": "a write was not acknowledged because the minimum rose",
    "offline-for-good": "nobody may lead, because all who could have lost their disks",
}
"""What is counted, and may be missed by a whole campaign."""


class Marks(Counter[str]):
    """How often what was seen."""

    def hit(self, name: str) -> None:
        """Count one sight; the name must be of the table."""
        if name not in MARKS and name not in RARE:
            raise KeyError(f"{name} is no mark; see sim/checks/marks.py")
        self[name] += 1
