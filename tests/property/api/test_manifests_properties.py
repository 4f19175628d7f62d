"""Whatever stands in a manifest, reading it raises nothing; what is valid survives; a second judge agrees."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_api import base
from headrace_api.engine import InferenceEngine, InferenceEngineSpec
from headrace_api.policy import RoutingPolicy, RoutingPolicySpec
from headrace_api.schema import INT_OR_STRING, KEYS, OPEN, RULES_KEY, Schema, schema_of
from headrace_api.table import RoutingTable
from headrace_api.units import HIGHEST, LOWEST
from headrace_api.urls import URL_PATTERN, normal_url
from headrace_operator.store.manifests import read_manifests
from headrace_operator.store.schema_check import check
from support.examples import examples
from support.from_types import values_of
from support.resources import AGAINST, against, engine, policy

# The machine may be slow; how fast an example is made is no property of the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["10", "500m", "1s", "m", "a", "http://a:80", "headrace.dev/v1alpha1", "InferenceEngine", "List"]),
)
NAMES = st.one_of(
    st.sampled_from(
        ["apiVersion", "kind", "metadata", "spec", "items", "name", "models", "frontends", "capacity", "<<"]
    ),
    st.text(max_size=6),
)
JUNK = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=5))
)
BASES = [engine(), policy(), *(against(rule) for rule in AGAINST)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of everything inside a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, child in children for place in places(child, (*path, name)))]


@st.composite
def mutated(draw: st.DrawFn, junk: st.SearchStrategy[Any], bases: list[Any]) -> Any:
    """A resource in which one thing was replaced, removed or added."""
    value = copy.deepcopy(draw(st.sampled_from(bases)))
    *around, last = draw(st.sampled_from(places(value)[1:]))
    inside = value
    for part in around:
        inside = inside[part]
    match draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            inside[last] = draw(junk)
        case "remove":
            del inside[last]
        case _ if isinstance(inside, dict):
            inside[draw(NAMES)] = draw(junk)
        case _:
            inside.append(draw(junk))
    return value


@given(JUNK, st.booleans())
@settings(UNHURRIED, max_examples=examples(80))
def test_junk_never_raises(value: Any, as_json: bool) -> None:
    data = json.dumps(value) if as_json else yaml.safe_dump(value, allow_unicode=True)

    found = read_manifests(
        [("junk", data.encode("utf-8", "surrogatepass")), ("good", yaml.safe_dump(engine()).encode())]
    )

    assert found.engines
    assert all("\n" not in str(fault) for fault in (*found.faults, *found.notices))


@given(st.binary(max_size=200))
@settings(UNHURRIED, max_examples=examples(80))
def test_bytes_never_raise(data: bytes) -> None:
    read_manifests([("bytes", data)])


@given(st.text(alphabet=" \n\t-:#[]{}&*!|>'\"%@`,?abc<019.~", max_size=60))
@settings(UNHURRIED, max_examples=examples(300))
def test_almost_yaml_never_raises(text: str) -> None:
    read_manifests([("text", text.encode())])


@given(mutated(JUNK, BASES))
@settings(UNHURRIED, max_examples=examples(100))
def test_a_mutated_resource_never_raises_nor_disturbs(value: Any) -> None:
    files = [("mutated", yaml.safe_dump(value).encode()), ("good", yaml.safe_dump(engine(name="good")).encode())]

    found = read_manifests(files)

    assert "good" in {one.metadata.name for one in found.engines}
    assert all(fault.file == "mutated" for fault in found.faults)


@pytest.mark.parametrize("kind", [InferenceEngine, RoutingPolicy, RoutingTable], ids=lambda kind: kind.__name__)
def test_codec_round_trip(kind: type[msgspec.Struct]) -> None:
    @given(values_of(kind))
    @settings(UNHURRIED, max_examples=examples(30))
    def round_trip(value: msgspec.Struct) -> None:
        data = msgspec.json.encode(value)
        assert msgspec.json.decode(data, type=kind) == value
        assert msgspec.json.encode(msgspec.json.decode(data, type=kind)) == data

    round_trip()


@given(st.one_of(values_of(InferenceEngine), values_of(RoutingPolicy)))
@settings(UNHURRIED, max_examples=examples(30))
def test_what_its_type_takes_the_schema_takes_but_for_rules(value: InferenceEngine | RoutingPolicy) -> None:
    """A typed spec has no fault of form: only of bounds in value, of entries that stand twice, or of addresses."""
    spec = msgspec.json.decode(msgspec.json.encode(value.spec))

    for finding in check(schema_of(type(value.spec)), spec, ("spec",)):
        words = (" is below ", " is above ", "stands already at", "stand already at", "address", "host")
        assert any(word in finding.message for word in words), finding


@given(st.one_of(st.just(engine()), mutated(st.sampled_from(["a", 1, ["http://b"], {}]), [engine(), policy()])))
@settings(UNHURRIED, max_examples=examples(100))
def test_served_resources_survive_their_json(value: Any) -> None:
    found = read_manifests([("f", yaml.safe_dump(value).encode())])

    for resource in (*found.engines, *found.policies):
        again = read_manifests([("f", msgspec.json.encode(resource))])
        assert (again.engines or again.policies) == (resource,)


@given(st.text(max_size=30))
@settings(UNHURRIED)
def test_a_canonical_address_stays_as_it_is(text: str) -> None:
    for address in (text, f"http://{text}", f"http://{text}:80/"):
        try:
            normal = normal_url(address)
        except ValueError as error:
            assert "right would be" in str(error)
        else:
            assert normal_url(normal) == normal


PLAIN_JUNK = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 200), st.text(max_size=4), st.sampled_from(["10", "500m", "1s", "fe"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
)
LONGEST = "99999h" * 4
LEFT_OUT = {LOWEST, HIGHEST, RULES_KEY, OPEN, "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}


def comparable(schema: Any) -> Any:
    """The part of a schema that both judges know: addresses as plain names, no bounds of values, no uniqueness."""
    if isinstance(schema, list):
        return [comparable(item) for item in schema]
    if not isinstance(schema, dict):
        return base.LABEL_PATTERN if schema == URL_PATTERN else schema
    kept = {key: comparable(value) for key, value in schema.items() if key not in LEFT_OUT}
    if LOWEST in schema:
        kept |= {LOWEST: "0", HIGHEST: "999999999999T"} if INT_OR_STRING in schema else {LOWEST: "0s", HIGHEST: LONGEST}
    return kept


def as_json_schema(schema: Any) -> Any:
    """The same in the words of JSON Schema."""
    if isinstance(schema, list):
        return [as_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made: Schema = {key: as_json_schema(value) for key, value in schema.items() if key not in (KEYS, INT_OR_STRING)}
    if "pattern" in made and isinstance(made["pattern"], str):
        made["pattern"] = made["pattern"].removesuffix("$") + r"\Z"
    if schema.get(INT_OR_STRING):
        made["type"] = ["integer", "string"]
    if "properties" in schema and schema.get("type") == "object":
        made["additionalProperties"] = False
    if KEYS in schema:
        made["propertyNames"] = as_json_schema(schema[KEYS])
    return made


JUDGES = {
    kind: (comparable(schema_of(spec)), jsonschema.Draft202012Validator(as_json_schema(comparable(schema_of(spec)))))
    for kind, spec in (("InferenceEngine", InferenceEngineSpec), ("RoutingPolicy", RoutingPolicySpec))
}


@given(st.sampled_from(BASES), st.data())
@settings(UNHURRIED, max_examples=examples(200))
def test_the_jsonschema_library_judges_alike(resource: Any, data: st.DataObject) -> None:
    """Differential: the same fields are blamed, over specs in which one thing was changed."""
    spec = data.draw(mutated(PLAIN_JUNK, [resource["spec"]]))
    schema, judge = JUDGES[resource["kind"]]

    ours = {finding.path for finding in check(schema, spec)}
    theirs = {path for error in judge.iter_errors(spec) for path in blamed(error)}

    assert ours == theirs


def blamed(error: jsonschema.ValidationError) -> list[tuple[str | int, ...]]:
    path = tuple(error.absolute_path)
    if error.validator == "required":
        return [(*path, name) for name in error.validator_value if name not in error.instance]
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        return [(*path, name) for name in error.instance if name not in known]
    if "propertyNames" in error.absolute_schema_path:
        return [(*path, error.instance)]
    return [path]
