"""Which logs a broker opens, creates, sets aside and deletes, and what its folders do to them.

`Hosting` decides; a performer does the input and output. The caller's duties:

1. Hand each metadata image to `follow`, the first with the topics that went before it (see
   `Act`), and what requests left to `take_faults` and `start_syncs`.
2. Call `tick` with the steady clock, about once a second.
3. Call `advance` until it says that nothing is left to do. Between two calls other work may run.
4. After each of these calls, perform what `take_effects` returns, in order. An effect that names
   an answer is answered with `step`, before `advance` is called again where it opens a log.
5. Hand `take_touched` to replication: the partitions whose replica came, went or changed.
6. Have `cleaner` look for logs to compact, and perform the passes that it begins.

    hosting.follow(image, delta, deleted_before, deleted_ids)
    while hosting.advance(now_ms):
        for effect in hosting.take_effects():
            hosting.step(perform(effect), now_ms)

An event that does not fit the state of its partition, folder or sync raises `Bug`. The tables are
in `states.py`, `core/log/room.py` and `syncs.py`. Sources: Kafka's ReplicaManager and LogManager,
KIP-112 and KIP-858 (several folders). Not here: reading and writing files, locks on folders.
"""
