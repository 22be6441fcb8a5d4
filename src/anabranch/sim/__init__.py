"""The simulator: the core with a clock, a network, disks and stores that fail on purpose."""
