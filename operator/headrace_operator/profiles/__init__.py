"""Headrace: profiles."""
