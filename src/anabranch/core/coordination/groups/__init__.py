"""Consumer groups, of whatever kind, and the offsets that groups commit."""
