"""How many examples a property test looks at: its own number, times HEADRACE_EXAMPLES (make test-long raises it)."""

from __future__ import annotations

import os


def examples(number: int) -> int:
    """``number`` in make test, a multiple of it in make test-long."""
    return number * int(os.environ.get("HEADRACE_EXAMPLES", "1"))
