"""Routing tables from files and the API server, and the heartbeat beside them."""
