"""Headrace: core."""
