"""Mirroring one cluster to another on Spark: who acts where `core.mirror` decides.

What: `run` keeps the flows of an mm2.properties going. Spark places long tasks (task.py), which
fetch, restamp and produce whole batches by themselves; the driver (driver.py) plans waves of them
and does topics, settings, checkpoints, groups and heartbeats. Records never pass through the JVM.
"""
