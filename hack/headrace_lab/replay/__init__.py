"""Replay: sends a workload to routers at its own times, whatever comes back, and records what became of it."""
