"""What requests need of a partition: the protocol, a composite of its parts, who brings bytes."""
