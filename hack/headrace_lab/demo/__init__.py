"""The demo: the whole of Headrace as real processes on this machine, a script of faults, and what came of them.

It stands outside all three paths: it starts the system, sends requests as clients do, and reads only what any
outsider could read (tables, status, Events, metrics). It must not take part in what it shows.
"""
