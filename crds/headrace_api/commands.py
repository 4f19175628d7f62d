"""What a command of the program ``headrace`` is; each part registers its own under the entry point group.

The program itself imports none of them by name (docs/adr/0002-commands-by-entry-point.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

EXIT_DONE: Final = 0
EXIT_NEGATIVE: Final = 1
EXIT_INPUT: Final = 2
EXIT_ENVIRONMENT: Final = 3


@dataclass(frozen=True)
class Command:
    """One subcommand. ``run`` returns the exit code; it imports what is heavy only when it runs."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class InputError(Exception):
    """The input is wrong; one line a fault, each naming file, resource, field, value and what would be right."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class EnvironmentFailed(Exception):
    """The environment failed (a port taken, a file unwritable); the message says what and how to mend it."""
