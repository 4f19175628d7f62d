"""Headrace: operator."""
