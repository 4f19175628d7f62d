"""What the router reads of a request's body, and the one value that it may change in it.

On the request path. A body is hostile: only the named fields are decoded, whatever can't be is a client's error
(400) and never an exception, and what an engine might read otherwise than we (a second ``model``) is refused. All
other bytes pass on unchanged. NaN and Infinity are not JSON (RFC 8259, 6), half a surrogate pair is no text (8.2):
both are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, cast

import msgspec
from msgspec import Raw
from mypy_extensions import mypyc_attr

from headrace_router.core.json_shapes import MISSING, BadBody, BodyFacts, Said
from headrace_router.core.json_text import MAX_PARTS, Shape, value_spans

# Far above any tool schema seen, far below what exhausts the stack of any Python.
MAX_DEPTH: Final = 128
# CPython's own limit for text to int is 4,300 digits; numbers are far shorter wherever they mean something.
MAX_DIGITS: Final = 1_024
MAX_MODEL_NAME: Final = 256

_NO_NEEDS: Final[frozenset[str]] = frozenset()
# A compiled module finds its own constants faster than imported ones.
_MISSING: Final = MISSING
_PREFIX: Final = "field_"
_DIGITS: Final = re.compile(rb"[0-9]{3}")
_MODEL_VALUE: Final = re.compile(rb'"model"\s*:\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)
_STRIDE: Final = MAX_DIGITS // 4
# One byte of every so many: a run of MAX_DIGITS digits covers one at least.
_SPARSE: Final = MAX_DIGITS - 1
# In longer texts a digit is likely among those.
_MOST_SPARSE: Final = 2**16
_BACKSLASH: Final = 0x5C
_ZERO: Final = 0x30
_NINE: Final = 0x39
_LIST: Final = 0x5B
_SPACE: Final = 0x20
_PARTS: Final = msgspec.json.Decoder(list[Raw])
# Values from this length on are left out of the outline; a name and its value are at most this far apart.
_LONG: Final = 256
_NEAR: Final = 8
# What stands beside the longest value of most bodies is shorter than this.
_SHORT: Final = 1_024
# Longer ones are not taken apart into objects, of which each takes many times its bytes.
_MOST_APART: Final = 2**19


_Decode = Callable[[bytes], BodyFacts]
# Bound methods of decoders; the sets of fields are those of the tables in force.
_DECODES: Final[dict[frozenset[str], _Decode]] = {}
_MOST_DECODES: Final = 256


def _decode_of(fields: frozenset[str]) -> _Decode:
    found = _DECODES.get(fields)
    if found is None:
        if len(_DECODES) >= _MOST_DECODES:
            _DECODES.clear()
        found = _DECODES[fields] = _decoder(fields).decode
    return found


def _decoder(fields: frozenset[str]) -> msgspec.json.Decoder[BodyFacts]:
    extra = sorted(fields - set(BodyFacts.__struct_fields__))
    if not extra:
        return msgspec.json.Decoder(BodyFacts)
    # Prefixed in Python: a field may be called like a keyword or an attribute of the struct.
    names = {_PREFIX + name: name for name in extra}
    wanted = [(name, Raw, MISSING) for name in names]
    shape = msgspec.defstruct("BodyFactsWithFields", wanted, bases=(BodyFacts,), kw_only=True, rename=names)
    return cast("msgspec.json.Decoder[BodyFacts]", msgspec.json.Decoder(shape))


def field(facts: BodyFacts, name: str) -> str | bool | Raw | None:
    """A top-level field by its own name: one of BodyFacts, or one that ``read_body`` was asked for."""
    known = name in BodyFacts.__struct_fields__
    found: str | bool | Raw | None = getattr(facts, name if known else _PREFIX + name, None)
    return found


@mypyc_attr(free_list_len=1)
class Body:
    """What was read of a body that is accepted. ``flat``: for certain none of its turns holds a list."""

    __slots__ = ("facts", "flat")

    def __init__(self, facts: BodyFacts) -> None:
        self.facts = facts
        self.flat = False


def read_body(data: bytes, fields: frozenset[str] = frozenset()) -> Body | BadBody:
    """The wanted fields of a JSON body, or why it is refused. ``fields``: those a policy's rules name."""
    if not data.isascii() and not _is_utf8(data):
        return BadBody("the body is not UTF-8; right would be JSON in UTF-8")
    try:
        facts = _decode_of(fields)(data)
    except msgspec.ValidationError as error:
        return _wrong_field(str(error))
    except msgspec.DecodeError as error:
        return BadBody(f"the body is not JSON: {error}")
    except RecursionError:
        return _too_deep()
    if not 0 < len(facts.model) <= MAX_MODEL_NAME:
        return BadBody(f"model has {len(facts.model)} characters; right would be 1 to {MAX_MODEL_NAME}", "model")
    body = Body(facts)
    return body if _plain(data, body) else _suspicious(data, facts) or body


def needs(body: Body) -> frozenset[str]:
    """Capabilities that the request shows: tools, vision, audio.

    A quoted word is a JSON string of its own (quotes inside text are escaped), so looking for its bytes is exact
    enough: at worst a text item consists of nothing but that word.
    """
    facts = body.facts
    turns = b"" if body.flat else bytes(facts.messages) or bytes(facts.input)
    # Parts that aren't text are objects in a list within a turn.
    list_at = turns.find(b"[", 1) if turns else -1
    mixed = list_at > 0 and _PARTS_BEGIN.search(turns, list_at) is not None
    if not mixed and facts.tools is _MISSING and facts.functions is _MISSING:
        return _NO_NEEDS
    shown: set[str] = set()
    if bytes(facts.tools) not in _NOTHING or bytes(facts.functions) not in _NOTHING:
        shown.add("tools")
    if mixed and b'"image' in turns and (b'"image_url"' in turns or b'"image"' in turns):
        shown.add("vision")
    if mixed and b'"input_' in turns:
        shown.update(name for word, name in _INPUT_PARTS if word in turns)
    return _KNOWN_NEEDS[frozenset(shown)]


_PARTS_BEGIN: Final = re.compile(rb"\[\s*\{")
_INPUT_PARTS: Final = ((b'"input_image"', "vision"), (b'"input_audio"', "audio"))
_NOTHING: Final = (b"", b"null", b"[]", b"{}")
_KNOWN_NEEDS: Final = {
    found: found
    for found in (
        frozenset(name for place, name in enumerate(("tools", "vision", "audio")) if bits >> place & 1)
        for bits in range(8)
    )
}


def replace_model(data: bytes, served_name: str) -> bytes:
    """The body with another value of its ``model``; every other byte as it was.

    Args:
        data: a body that ``read_body`` accepted.
        served_name: what the engine calls the model.
    """
    outline = _Outline(data, _decode_of(_NO_NEEDS)(data))
    spans = outline.models()
    if spans is None or len(spans) != 1:
        raise ValueError("model doesn't stand once in the body; read_body accepts no such body")
    start, end = map(outline.place, spans[0])
    return b"".join((data[:start], json.dumps(served_name).encode(), data[end:]))


def _plain(data: bytes, body: Body) -> bool:
    """Whether cheap signs alone prove that none of the checks below would find anything; most bodies are such.

    Nothing is copied but what stands beside the longest value. Sets ``flat`` where that costs nothing.
    """
    facts = body.facts
    if (value := facts.messages) is not _MISSING:
        name = b'"messages"'
    elif (value := facts.input) is not _MISSING:
        name = b'"input"'
    else:
        name, value = b'"prompt"', facts.prompt
    length = len(value)
    start = end = 0
    rest = data
    if length >= _LONG:
        # Behind a colon, and a space with some writers.
        start = data.find(name) + len(name) + 1
        if start + length >= len(data):
            return False
        if data[start] == _SPACE:
            start += 1
        if not data.startswith(value, start):
            return False
        end = start + length
        rest = data[:start] + data[end:]
    # What is short and holds a model has no room for a long number.
    if len(rest) > _SHORT or _BACKSLASH in rest or rest.count(b'"model"') != 1:
        return False
    if end - start > _SPARSE and _may_hold_long_number(data, start, end):
        return False
    # Each level that is opened is closed: nesting is at most the number of opening brackets.
    if end and data[start] == _LIST and _LIST not in rest and data.find(b"[", start + 1) < 0:
        body.flat = True
        return len(data) - len(data.replace(b"{", b"")) < MAX_DEPTH
    return _brackets(data) <= MAX_DEPTH


def _may_hold_long_number(text: bytes, start: int, end: int) -> bool:
    """Whether three digits stand side by side in a sample, of which a run of MAX_DIGITS covers that many."""
    if end - start > _MOST_SPARSE or _a_digit(text, start, end):
        return _DIGITS.search(text[start:end:_STRIDE]) is not None
    return False


def _a_digit(text: bytes, start: int, end: int) -> bool:
    """Whether one of the sparse sample's bytes is a digit."""
    return any(_ZERO <= text[at] <= _NINE for at in range(start + _SPARSE - 1, end, _SPARSE))


class _Outline:
    """A body less its longest values, a 0 in place of each: short, and with all of its top-level names.

    Only a value that stands behind its quoted name is cut out. Such bytes are a JSON string of their own (quotes
    inside text are escaped) and what follows is one whole value, so no top-level name is ever lost with it.
    """

    __slots__ = ("cuts", "text", "values")

    def __init__(self, data: bytes, facts: BodyFacts) -> None:
        self.text = data
        self.cuts: list[tuple[int, int]] = []
        self.values: list[bytes] = []
        for name, raw in (
            (b'"messages"', facts.messages),
            (b'"tools"', facts.tools),
            (b'"input"', facts.input),
            (b'"prompt"', facts.prompt),
        ):
            value = bytes(raw)
            if len(value) >= _LONG:
                self._cut(name, value)

    def models(self) -> list[tuple[int, int]] | None:
        """Where the values of the top-level ``model`` stand; None where the body has too many parts to tell."""
        if self.text.count(b'"model"') == 1 and b"\\u006" not in self.text:
            # The only one is the top-level one, which the decoder found.
            only = _MODEL_VALUE.search(self.text)
            assert only is not None
            return [only.span(1)]
        return value_spans(self.text, "model")

    def place(self, at: int) -> int:
        """Where a place in the outline is in the body."""
        for start, length in reversed(self.cuts):
            if at > start:
                at += length - 1
        return at

    def _cut(self, name: bytes, value: bytes) -> None:
        behind = self.text.find(name) + len(name)
        start = self.text.find(value[:1], behind, behind + _NEAR)
        if start >= 0 and self.text.startswith(value, start):
            self.text = b"0".join((self.text[:start], self.text[start + len(value) :]))
            self.cuts.append((start, len(value)))
            self.values.append(value)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _too_deep() -> BadBody:
    return BadBody(f"the body nests too deep; right would be at most {MAX_DEPTH} levels")


def _too_many_parts() -> BadBody:
    return BadBody(f"the body has too many parts; right would be at most {MAX_PARTS} strings, arrays and objects each")


def _wrong_field(error: str) -> BadBody:
    """msgspec says ``Expected `str`, got `int` - at `$.model```: keep it, and name the field for the client."""
    match = re.search(r"`\$\.([A-Za-z0-9_]+)|required field `([A-Za-z0-9_]+)`", error)
    name = (match[1] or match[2]) if match else ""
    return BadBody(f"{error[:1].lower()}{error[1:]}", name)


def _suspicious(data: bytes, facts: BodyFacts) -> BadBody | None:
    """The checks that the decoder doesn't make; each looks closely only where a cheap sign says so."""
    outline = _Outline(data, facts)
    long = _may_hold_long_number(data, 0, len(data))
    if (long or _may_be_deep(outline)) and (fault := _misshapen(Shape(data, MAX_DIGITS))):
        return fault
    spans = outline.models()
    if spans is None:
        return _too_many_parts()
    if len(spans) != 1:
        return BadBody("model stands more than once in the body; right would be once", "model")
    return None


def _misshapen(shape: Shape) -> BadBody | None:
    if shape.depth is None:
        return _too_many_parts()
    if shape.depth > MAX_DEPTH:
        return _too_deep()
    if shape.long_number:
        return BadBody(f"the body has a number of more than {MAX_DIGITS - 1} digits; right would be fewer")
    return None


def _may_be_deep(outline: _Outline) -> bool:
    """Nesting is at most the number of opening brackets: counted over the body, then per element of long lists."""
    if _brackets(outline.text) > MAX_DEPTH:
        return True
    for value in outline.values:
        if value[:1] == b'"' or _brackets(value) < MAX_DEPTH:
            continue
        if (
            value[:1] != b"["
            or len(value) > _MOST_APART
            or any(_too_many(bytes(part)) for part in _PARTS.decode(value))
        ):
            return True
    return False


def _too_many(part: bytes) -> bool:
    most = MAX_DEPTH - 2
    if len(part) <= 2 * most or (brackets := _brackets(part)) <= most:
        return False
    try:
        text = bytes(_SAID.decode(part).content)
    except msgspec.ValidationError:
        return True
    # Brackets within a turn's text, of which code is full, open nothing.
    return text[:1] != b'"' or brackets - _brackets(text) > most


_SAID: Final = msgspec.json.Decoder(Said)


def _brackets(text: bytes) -> int:
    """Opening brackets. Taking them out jumps from one to the next, where counting looks at every byte."""
    return 2 * len(text) - len(text.replace(b"[", b"")) - len(text.replace(b"{", b""))
