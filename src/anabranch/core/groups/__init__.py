"""Consumer groups of the classic protocol, and the offsets that groups commit."""
