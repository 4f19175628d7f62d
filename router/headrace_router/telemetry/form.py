"""Which form of the hot modules runs: compiled, or their source (docs/adr/0021). Both do the same; one is slower.

Beside every path. Nothing may do something else because of it.
"""

from __future__ import annotations

from importlib.machinery import SOURCE_SUFFIXES
from typing import Final

from headrace_router.core import selection

FORM: Final = "source" if selection.__file__.endswith(tuple(SOURCE_SUFFIXES)) else "compiled"
# For people, behind a comma.
IN_WORDS: Final = "compiled" if FORM == "compiled" else "not compiled"
