"""Headrace: snapshot."""
