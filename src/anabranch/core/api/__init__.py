"""What a request means: one numbered file an API key."""
