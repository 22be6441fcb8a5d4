"""Rehearsals: a cluster and its failures from a small file, run in the simulated world, answered.

Why: what survives which loss is decided by settings that people choose long before the loss. A
rehearsal shows it on their own cluster's shape: what goes offline or read-only and for how long,
which acknowledged records are lost and by which rule, what has to be copied. The rule kept: it is
the production core that runs, and the answers are read from what it did, never from the settings.

`rehearsal_file.py` reads a file into the plan of `model.py`; `stage.py` runs it; `answers.py` is
what was seen; `transcript.py` tells it a line a step; `shipped/` holds the ones that come with the
package.
"""
