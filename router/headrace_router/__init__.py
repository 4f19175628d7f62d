"""Headrace: router."""
