"""Headrace: lab."""
