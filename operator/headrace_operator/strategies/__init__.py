"""Headrace: strategies."""
