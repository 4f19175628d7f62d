"""Headrace: io."""
