"""What decoders make of JSON: structs of msgspec, apart from the code that uses them.

On the request path. They stand alone because msgspec reads their annotations when they are made, which a compiled
module hasn't got (docs/adr/0021). Must hold no logic.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

MISSING: Final = Raw(b"")


class BodyFacts(msgspec.Struct, kw_only=True, gc=False):
    """The wanted fields; a Raw is the field's own JSON, empty when missing.

    ``field`` reads one by its name, also those that a policy's affinity rules name beside these.
    """

    model: str
    stream: bool | None = None
    messages: Raw = MISSING
    prompt: Raw = MISSING
    input: Raw = MISSING
    instructions: Raw = MISSING
    system: Raw = MISSING
    tools: Raw = MISSING
    functions: Raw = MISSING
    user: Raw = MISSING
    prompt_cache_key: Raw = MISSING
    store: Raw = MISSING
    previous_response_id: Raw = MISSING


class BadBody(msgspec.Struct, frozen=True):
    """Answer 400: ``message`` says what would be right, ``param`` names the field ("" for the whole body)."""

    message: str
    param: str = ""
    code: str = "bad_request"


class Said(msgspec.Struct):
    """Of a turn in a conversation what is said in it."""

    content: Raw = MISSING


class Turn(msgspec.Struct):
    """A turn and whose it is."""

    role: str = ""
    content: Raw = MISSING
