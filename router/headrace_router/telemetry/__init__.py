"""What the router counts, logs and learns."""
