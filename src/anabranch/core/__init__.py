"""The decisions of Anabranch: pure, deterministic, without a socket, clock, thread or log line.

`core` imports nothing of the project outside `core`. Time comes in as an argument, randomness as a
seeded generator, files through the small `Files` interface that the caller hands over.
"""
