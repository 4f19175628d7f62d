"""Headrace: controller."""
