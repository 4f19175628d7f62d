"""A small package that is run in both forms, for what they have in common."""
