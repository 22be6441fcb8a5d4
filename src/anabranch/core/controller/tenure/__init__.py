"""The active controller's term: the lease, appends under way, answers, snapshots, giving way."""
