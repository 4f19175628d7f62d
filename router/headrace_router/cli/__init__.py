"""Headrace: cli."""
