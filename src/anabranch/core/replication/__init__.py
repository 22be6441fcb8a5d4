"""One partition's replicas: who leads, what is in sync, what is committed."""
