"""Headrace: estimators."""
