"""Headrace: handlers."""
