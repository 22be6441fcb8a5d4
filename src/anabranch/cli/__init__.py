"""The command line: every verb prints what core decided or a cluster answered."""
