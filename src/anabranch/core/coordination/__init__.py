"""What one broker decides for many clients, and keeps in a compacted topic of the cluster."""
