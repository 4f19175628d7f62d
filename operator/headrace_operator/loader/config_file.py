"""The configuration file: read at start, read again when its content changes, kept when it stops being right.

On no path of requests. At start a wrong file ends the operator with every fault; while it runs a wrong edit is told
once and the last good configuration goes on.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from headrace_api.commands import InputError
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_check import parse_config

MAX_FILE: Final = 2**20


class ConfigState(NamedTuple):
    """The configuration in force; changed: it is another one than at the last look. faults: of the file as it is."""

    config: OperatorConfig
    changed: bool
    faults: tuple[str, ...]


class ConfigFile:
    """One file, or none (all defaults)."""

    def __init__(self, path: Path | None) -> None:
        """Read the file for the first time.

        Raises:
            InputError: it is wrong; one line a fault.
        """
        self._path = path
        self._data: bytes | None = None
        self._faults: tuple[str, ...] = ()
        self._config = OperatorConfig()
        if path is not None:
            self.look()
            if self._faults:
                raise InputError(list(self._faults))

    def look(self) -> ConfigState:
        """What is in force now."""
        if self._path is None:
            return ConfigState(self._config, False, ())
        try:
            data = self._path.read_bytes()
        except OSError as error:
            self._faults = (f"{self._path}: {error.strerror}; right would be a readable file",)
            return ConfigState(self._config, False, self._faults)
        if data == self._data:
            return ConfigState(self._config, False, self._faults)
        self._data = data
        parsed = read_config(data, str(self._path))
        if not isinstance(parsed, OperatorConfig):
            self._faults = parsed
            return ConfigState(self._config, False, self._faults)
        changed = parsed != self._config
        self._config, self._faults = parsed, ()
        return ConfigState(self._config, changed, ())


def read_config(data: bytes, file: str) -> OperatorConfig | tuple[str, ...]:
    """The configuration in a file's bytes, or its faults, one line each."""
    if len(data) > MAX_FILE:
        return (f"{file}: {len(data)} bytes; right would be at most {MAX_FILE}",)
    try:
        parsed = yaml.load(data, Loader=_StrictLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        return (f"{file}:{line}: {error.problem or 'not YAML'}",)
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        return (f"{file}: not YAML: {str(error).splitlines()[0]}",)
    return parse_config(parsed, file)


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML without aliases (they can grow without bound) and without keys that stand twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are refused", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)
