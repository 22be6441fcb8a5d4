"""What the command line prints as JSON, and a console shows: plain values of a cluster."""
