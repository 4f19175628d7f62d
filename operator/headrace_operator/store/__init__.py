"""Headrace: store."""
