"""Where the metadata log is committed: the interface and its engines."""
