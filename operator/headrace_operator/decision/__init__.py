"""Headrace: decision."""
