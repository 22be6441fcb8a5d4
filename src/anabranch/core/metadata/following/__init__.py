"""Following the metadata log: a node's own copy of it, and the machine that keeps it up to date."""
