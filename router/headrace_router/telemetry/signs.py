"""How an event that has content is told without decoding it.

On the request path. Once a stream's first event with content has been decoded, its sign is kept: the very bytes that
lead to the content there, such as ``"choices":[{"index":0,"delta":{"content":"``, or the type of the event. An event
of one data line that holds the sign, and behind it not the empty string, counts as one with content. That is exact for
valid JSON whose ``choices`` or ``type`` stand in the event itself: no string in JSON can hold a sign, because its
quotes would be escaped. It errs where an engine repeats the sign's bytes deeper inside an event without content, or
breaks off in the middle of one (such an event counts though no decoder would take it); both cost one event in a count
that stands in for usage, never usage itself. Must not hold state.
"""

from __future__ import annotations

import re
from typing import Final

# In front of the field with the content, or of the content itself, what engines leave empty.
_EMPTY: Final = rb'(?:"[a-z_]+"\s*:\s*(?:null|""|"assistant"|\d+)\s*,\s*)*'
_CHOICES: Final = (
    rb'"choices"\s*:\s*\[\s*\{\s*'
    + _EMPTY
    + rb"(?:"
    + rb'"text"\s*:\s*"(?!")'
    + rb"|"
    + rb'"delta"\s*:\s*\{\s*'
    + _EMPTY
    + rb"(?:"
    + rb'"(?:content|reasoning_content|reasoning|refusal)"\s*:\s*"(?!")'
    + rb"|"
    + rb'"tool_calls"\s*:\s*\[\s*\{\s*"[a-z]+"'
    + rb"))"
)
_TYPE: Final = rb'"type"\s*:\s*"(?:content_block_delta|[a-z_.]+\.delta)"'
_BY_CHOICES: Final = re.compile(_CHOICES)
_BY_TYPE: Final = re.compile(_TYPE)


def sign_of(data: bytes) -> bytes | None:
    """The sign of an event with content; None where it has none that is known, so that its kind is always decoded.

    What follows a sign is a quote only where the content is empty.
    """
    found = _BY_CHOICES.search(data)
    if found is None and b'"choices"' not in data:
        found = _BY_TYPE.search(data)
    return None if found is None else found[0]
