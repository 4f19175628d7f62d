"""One request: taken in, attempted, relayed, refused."""
