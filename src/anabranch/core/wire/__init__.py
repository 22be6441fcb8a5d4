"""Bytes on the wire and in the log: frames, messages, records, batches."""
