"""Where replicas go: one file a placer, and the checks that hold for every placer."""
