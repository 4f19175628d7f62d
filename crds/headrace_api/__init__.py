"""Headrace: the API."""
