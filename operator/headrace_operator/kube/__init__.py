"""The one way to API servers: every call bounded in time, every failure one kind of value, every write guarded."""
