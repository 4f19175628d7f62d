"""Clients' connections."""
