"""Replay: sends a workload to routers at its own times, whatever comes back, and records what became of it.

It stands where clients stand, before the request path, and knows of routers only what their answers say.
"""
