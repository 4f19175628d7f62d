"""What a container serves, by its image and its command line: runtime, model, adapters, port, parallelism.

Not on any path; pure. The words are those of the runtimes' own documentation: vLLM's ``vllm serve``, SGLang's
``launch_server``, TGI's ``text-generation-launcher`` with its variables, TensorRT-LLM's ``trtllm-serve``. What a
command line does not say is not known; no default of any version is assumed but the port.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace_operator.cli.discover_read import Raw, items, part, text

MAX_WORDS: Final = 2000  # of a command line
_VARIABLE: Final = re.compile(r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_NUMBER: Final = re.compile(r"(\d{1,9})(?:\.0*)?([kKmM]?)")
# vLLM's own shorthand: 32k is 32,000 and 32K 32,768.
_SCALE: Final = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}
_NO_ENGINE: Final = re.compile(r"router|proxy|sidecar|exporter|operator|controller|gateway|benchmark|client", re.I)


class Dialect(NamedTuple):
    """How one runtime is told what to do. Flags without dashes, ``_`` as ``-``; variables are read after flags."""

    runtime: str
    image: str
    program: str
    subcommand: str
    port: int
    model: tuple[str, ...]
    served: tuple[str, ...] = ()
    length: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    pipeline: tuple[str, ...] = ()
    concurrency: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    variables: bool = False


DIALECTS: Final = (
    Dialect(
        "vLLM",
        r"vllm",
        r"(^|/)vllm$|vllm\.entrypoints",
        "serve",
        8000,
        model=("model",),
        served=("served-model-name",),
        length=("max-model-len",),
        parallel=("tensor-parallel-size", "tp"),
        pipeline=("pipeline-parallel-size", "pp"),
        concurrency=("max-num-seqs",),
        adapters=("lora-modules",),
        tools=("enable-auto-tool-choice",),
        key=("api-key",),
    ),
    Dialect(
        "SGLang",
        r"sglang",
        r"sglang\.launch_server|(^|/)sglang$",
        "serve",
        30000,
        model=("model-path", "model"),
        served=("served-model-name",),
        length=("context-length",),
        parallel=("tensor-parallel-size", "tp-size", "tp"),
        pipeline=("pipeline-parallel-size", "pp-size"),
        concurrency=("max-running-requests",),
        adapters=("lora-paths",),
        tools=("tool-call-parser",),
        key=("api-key",),
    ),
    Dialect(
        "TGI",
        r"text-generation-inference|(^|/)tgi",
        r"text-generation-launcher",
        "",
        80,
        model=("model-id",),
        length=("max-total-tokens",),
        parallel=("num-shard",),
        concurrency=("max-concurrent-requests",),
        adapters=("lora-adapters",),
        key=("api-key",),
        variables=True,
    ),
    Dialect(
        "TensorRTLLM",
        r"tensorrt-?llm|trtllm",
        r"trtllm-serve",
        "serve",
        8000,
        model=("model",),
        served=("served-model-name",),
        length=("max-seq-len",),
        parallel=("tp-size",),
        pipeline=("pp-size",),
        concurrency=("max-batch-size",),
        tools=("tool-parser",),
    ),
)


class Serving(NamedTuple):
    """What a container serves; "" and 0: not known. key: (Secret, key) of its API key, or two empty texts."""

    runtime: str
    container: str
    image: str
    model: str
    served: tuple[str, ...]
    adapters: tuple[str, ...]
    port: int
    ports: tuple[int, ...]
    parallel: int
    length: int
    concurrency: int
    tools: bool
    key: tuple[str, str] | None


def serving(template: Raw) -> Serving | None:
    """The engine among a pod template's containers, told by its command line, else by its image."""
    containers = [entry for entry in items(template, "spec", "containers") if isinstance(entry, dict)]
    read = [(container, _words(container)) for container in containers]
    for container, words in read:
        for dialect in DIALECTS:
            if any(re.search(dialect.program, word) for word in words):
                return _read(dialect, container, words)
    for container, words in read:
        image = text(container, "image")
        name = image.rpartition("@")[0] or image
        for dialect in DIALECTS:
            if re.search(dialect.image, name, re.I) and not _NO_ENGINE.search(name):
                return _read(dialect, container, words)
    return None


def _environment(container: Raw) -> dict[str, str]:
    """Variables with a literal value; those out of Secrets and ConfigMaps are not read."""
    return {
        text(entry, "name"): text(entry, "value")
        for entry in items(container, "env")
        if "value" in part(entry) and text(entry, "name")
    }


def _words(container: Raw) -> list[str]:
    """Command and arguments as words: a shell's script is split, variables are replaced where they are known."""
    known = _environment(container)

    def expanded(word: str) -> str:
        return _VARIABLE.sub(lambda match: known.get(match[1] or match[2] or match[3], match[0]), word)

    given = [word for key in ("command", "args") for word in items(container, key) if isinstance(word, str)]
    words: list[str] = []
    for word in given:
        words += (
            _split(expanded(word))
            if re.search(r"\s", word.strip()) and not word.lstrip().startswith("{")
            else [expanded(word)]
        )
    return words[:MAX_WORDS]


def _split(script: str) -> list[str]:
    try:
        return shlex.split(script.replace("\\\n", " "), comments=True)
    except ValueError:
        return script.split()


def _flags(words: Sequence[str]) -> dict[str, list[str]]:
    """Values by flag; ``--a=b``, ``--a b c`` and ``-a b`` alike, underscores as dashes."""
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        match = re.match(r"--?([A-Za-z][\w.-]*)(?:=(.*))?$", word, re.DOTALL)
        if match:
            values = found.setdefault(match[1].replace("_", "-").lower(), [])
            values += [match[2]] if match[2] is not None else []
        elif word in (";", "&&", "||", "|", "&"):
            values = None
        elif values is not None:
            values.append(word)
    return found


class _Told:
    """A container's flags, and its variables where the runtime reads those."""

    def __init__(self, dialect: Dialect, container: Raw, words: Sequence[str]) -> None:
        self.flags = _flags(words)
        self.variables = _environment(container) if dialect.variables else {}

    def all(self, names: Sequence[str]) -> list[str]:
        """The values of the first flag that is there."""
        for name in names:
            if self.flags.get(name):
                return self.flags[name]
            if variable := self.variables.get(name.upper().replace("-", "_")):
                return [variable]
        return []

    def one(self, names: Sequence[str]) -> str:
        """Its first value; one that still holds a variable is not known."""
        found = next(iter(self.all(names)), "")
        return "" if _VARIABLE.search(found) else found

    def number(self, names: Sequence[str]) -> int:
        """Its value as a whole number above 0, else 0."""
        match = _NUMBER.fullmatch(self.one(names))
        return int(match[1]) * _SCALE[match[2]] if match else 0


def _read(dialect: Dialect, container: Raw, words: Sequence[str]) -> Serving:
    told = _Told(dialect, container, words)
    ports = tuple(_port(entry) for entry in items(container, "ports") if _port(entry))
    port = told.number(("port",))
    if not port:
        port = dialect.port if dialect.port in ports or not ports else ports[0]
    served = told.all(dialect.served)
    return Serving(
        runtime=dialect.runtime,
        container=text(container, "name"),
        image=text(container, "image"),
        model=told.one(dialect.model) or _positional(dialect, container, words),
        served=tuple(name for entry in served for name in entry.split(",") if name and not _VARIABLE.search(name)),
        adapters=_adapters(told.all(dialect.adapters)),
        port=port if port <= 65535 else 0,
        ports=ports,
        parallel=max(1, told.number(dialect.parallel)) * max(1, told.number(dialect.pipeline))
        if told.number(dialect.parallel) or told.number(dialect.pipeline)
        else 0,
        length=told.number(dialect.length),
        concurrency=told.number(dialect.concurrency),
        tools=any(name in told.flags for name in dialect.tools),
        key=_key(dialect, container, told),
    )


def _port(entry: Any) -> int:
    found = part(entry).get("containerPort")
    return found if isinstance(found, int) and 0 < found <= 65535 else 0


def _positional(dialect: Dialect, container: Raw, words: Sequence[str]) -> str:
    """The model of ``vllm serve MODEL`` and ``trtllm-serve MODEL``, also where the program is the entry point."""
    places = [index for index, word in enumerate(words) if re.search(dialect.program, word)]
    asked = [index for index in places if list(words[index + 1 : index + 2]) == [dialect.subcommand]]
    if asked:
        rest = words[asked[-1] + 2 :]
    elif places:
        rest = words[places[-1] + 1 :] if dialect.runtime == "TensorRTLLM" else []
    else:
        rest = [] if items(container, "command") else words
    found = rest[0] if rest and not rest[0].startswith("-") else ""
    return "" if _VARIABLE.search(found) else found


def _adapters(values: Sequence[str]) -> tuple[str, ...]:
    """Names out of ``name=path``, ``{"name": …}`` or ``path``; a comma may stand between several."""
    names: list[str] = []
    for value in values:
        if value.lstrip().startswith("{"):
            try:
                names.append(text(json.loads(value), "name"))
            except ValueError:
                continue
        else:
            names += [entry.partition("=")[0] for entry in value.split(",")]
    return tuple(dict.fromkeys(name for name in names if name and not _VARIABLE.search(name)))


def _key(dialect: Dialect, container: Raw, told: _Told) -> tuple[str, str] | None:
    """Where the API key that it asks for comes from; the key itself is never read on."""
    if not dialect.key:
        return None
    for entry in items(container, "env"):
        name = text(entry, "name")
        if name in ("VLLM_API_KEY", "SGLANG_API_KEY", "API_KEY"):
            reference = part(entry, "valueFrom", "secretKeyRef")
            return text(reference, "name"), text(reference, "key")
    flag = next((told.flags[name] for name in dialect.key if name in told.flags), None)
    if flag is None:
        return None
    variable = _VARIABLE.fullmatch(flag[0]) if flag else None
    if variable:
        wanted = variable[1] or variable[2] or variable[3]
        for entry in items(container, "env"):
            if text(entry, "name") == wanted:
                reference = part(entry, "valueFrom", "secretKeyRef")
                return text(reference, "name"), text(reference, "key")
    return "", ""


def container_ports(template: Raw, name: str) -> Mapping[str, int]:
    """Named ports of a pod template's container."""
    for container in items(template, "spec", "containers"):
        if text(container, "name") == name:
            return {text(entry, "name"): _port(entry) for entry in items(container, "ports") if text(entry, "name")}
    return {}
