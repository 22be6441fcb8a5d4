"""The cluster's state and every decision about it."""
