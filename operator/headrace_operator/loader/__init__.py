"""Headrace: loader."""
