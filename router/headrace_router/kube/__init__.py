"""The router's own small client of the API server."""
