"""The remote log of classic topics: which segments are copied, kept and removed (KIP-405)."""
