"""Headrace: estimators. Pure: time and samples are arguments; everything advances on new samples, never on ticks."""
