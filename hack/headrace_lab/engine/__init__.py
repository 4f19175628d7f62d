"""Simulated engines: a step loop in a pure core, and real HTTP servers around it.

On the request path of the demo and of tests, never of production. The core (``steploop``, ``kvcache``) knows no
clock, no event loop and no network, so that the same code serves real time here and virtual time in a simulator.
"""
