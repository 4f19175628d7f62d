"""Headrace: optimizer."""
