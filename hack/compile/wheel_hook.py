"""Build hook of hatchling: a platform wheel with the router's hot modules compiled beside their source.

Off by default, so that a plain `pip install` needs no compiler; HATCH_BUILD_HOOKS_ENABLE=1 turns it on. Editable
installs stay as they are: tests choose their form themselves.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import package


class CompiledHook(BuildHookInterface):  # type: ignore[type-arg]  # the builder's type, of which nothing is used
    """Compiles into a temporary folder, and puts the extension modules from there into the wheel."""

    PLUGIN_NAME = "custom"
    _place: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        if version == "editable":
            return
        self._place = tempfile.TemporaryDirectory(prefix="headrace-wheel-")
        folder = Path(self._place.name)
        try:
            # Who installs a package didn't ask for others.
            package.make(folder, os.cpu_count() or 1, install=False)
        except package.Unable as error:
            raise SystemExit(f"headrace: {error}") from None
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        made = {
            str(file): str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if ".so" in file.suffixes
        }
        build_data["force_include"].update(made)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """See hatchling."""
        if self._place is not None:
            self._place.cleanup()
