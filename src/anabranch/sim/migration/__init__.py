"""Schedules in which a classic topic becomes diskless while clients use it and machines fail."""
