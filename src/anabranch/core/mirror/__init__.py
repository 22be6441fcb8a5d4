"""Decisions of mirroring one cluster to another: MirrorMaker 2's role, by whole record batches.

What: names and cycles (policy), what is mirrored (filters), the properties file (config), a batch
for another log (restamp, repack), where each record landed (index), groups' offsets (checkpoints),
and who copies what (wave_plan). `formats` has the records of MirrorMaker 2 and Connect. Rule kept:
nothing here reads a clock, a file or a socket; `pipelines` acts. Source: KIP-382, KIP-618.
"""
