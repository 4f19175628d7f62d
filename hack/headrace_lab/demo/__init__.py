"""The demo: the whole of Headrace as real processes on this machine, a script of faults, and what came of them."""
