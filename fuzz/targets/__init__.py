"""What can be fuzzed, one file a target; each has `TARGET`, and `fuzz/table.py` lists it."""
