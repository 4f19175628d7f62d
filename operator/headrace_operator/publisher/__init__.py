"""Headrace: publisher."""
