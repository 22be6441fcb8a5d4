"""Real processes, unmodified clients, faults for as long as one likes, and a judge.

What: `python -m chaos` (`make chaos`) runs three brokers, breaks them in every way that `testing`
can, and judges what clients were told against what is there at the end. Why: the promises that the
simulator checks are checked on sockets and disks, too. Not here: the faults themselves
(`anabranch.testing`), the simulator (`anabranch.sim`).
"""
