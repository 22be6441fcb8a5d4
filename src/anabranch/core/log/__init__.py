"""One partition's log in Kafka's files: segments, indexes, producer state, recovery, retention."""
