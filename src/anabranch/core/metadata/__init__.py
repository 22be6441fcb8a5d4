"""The cluster's state: its records, the image that they make, and the log that holds them."""
