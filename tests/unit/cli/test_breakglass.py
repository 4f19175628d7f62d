"""``headrace freeze``, ``drain`` and ``resume`` against an API server that answers from a dictionary."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from headrace_api.commands import Command, EnvironmentFailed, InputError
from headrace_operator.cli import break_glass, freeze
from headrace_operator.cli.break_glass import ENGINE, POLICY, TARGETS, hold, read_name, read_until, read_why, resume
from headrace_operator.cli.break_glass_text import length, report_lines
from headrace_operator.cli.json_schemas import schema_of
from headrace_operator.cli.output import Style
from headrace_operator.kube.client import KubeFault
from support.world import AT

SOON = "2026-11-29T14:00:00Z"
FREEZE_UNTIL, DRAIN_UNTIL, WHY = "headrace.dev/freeze-until", "headrace.dev/drain-until", "headrace.dev/why"


class Api:
    """The calls of KubeClient that these commands make, on objects by path; faults by (verb, plural)."""

    name = "test"

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.faults: dict[tuple[str, str], KubeFault] = {}
        self.managers: list[str] = []
        self.racing = 0

    def put(self, plural: str, name: str, *, spec: Any = None, **annotations: str) -> None:
        keys = {"freeze": FREEZE_UNTIL, "drain": DRAIN_UNTIL, "why": WHY}
        metadata = {"name": name, "namespace": "ns", "resourceVersion": "1"}
        if annotations:
            metadata["annotations"] = {keys[key]: value for key, value in annotations.items()}
        self.objects[f"/apis/headrace.dev/v1alpha1/namespaces/ns/{plural}/{name}"] = {
            "metadata": metadata,
            "spec": spec or {},
        }

    def annotations(self, plural: str, name: str) -> dict[str, str]:
        found = self.objects[f"/apis/headrace.dev/v1alpha1/namespaces/ns/{plural}/{name}"]["metadata"]
        return dict(found.get("annotations", {}))

    def _checked(self, verb: str, path: str) -> None:
        plural = path.split("/")[6]
        if fault := self.faults.get((verb, plural)):
            raise fault

    def get(self, path: str) -> dict[str, Any]:
        self._checked("get", path)
        if path not in self.objects:
            raise KubeFault(404, "NotFound", "not found")
        return json.loads(json.dumps(self.objects[path]))  # type: ignore[no-any-return]

    def list(self, path: str, *, metadata_only: bool = False) -> dict[str, Any]:
        self._checked("list", path)
        assert metadata_only
        return {"items": [value for key, value in self.objects.items() if key.startswith(f"{path}/")]}

    def merge(self, path: str, patch: dict[str, Any], *, manager: str) -> dict[str, Any]:
        self._checked("patch", path)
        metadata = self.objects[path]["metadata"]
        if self.racing:
            self.racing -= 1
            metadata["resourceVersion"] += "1"
        if patch["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise KubeFault(409, "Conflict", "the object has been modified")
        annotations = metadata.setdefault("annotations", {})
        for key, value in patch["metadata"]["annotations"].items():
            annotations.pop(key, None) if value is None else annotations.update({key: value})
        self.managers.append(manager)
        return self.get(path)


@pytest.fixture
def api() -> Any:
    made = Api()
    made.put("routingpolicies", "chat")
    made.put("inferenceengines", "a")
    return made


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("2h", "2026-11-29T14:00:00Z"),
        ("1h30m", "2026-11-29T13:30:00Z"),
        ("2026-11-29T15:00:00+01:00", SOON),
        ("24h", "2026-11-30T11:59:00Z"),
        ("2026-11-30T12:00:00Z", "2026-11-30T11:59:00Z"),
    ],
)
def test_until_is_a_duration_or_a_time(text: str, until: str) -> None:
    assert read_until(text, AT) == until


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tomorrow", "'tomorrow' is no time; right would be a duration such as 2h"),
        ("2026-11-29 14:00", "is no time"),
        ("0s", "is over"),
        ("2026-11-29T11:00:00Z", "is over; right would be a time ahead"),
        ("25h", "more than 24h ahead"),
        ("2027-01-01T00:00:00Z", "more than 24h ahead"),
        ("-2h", "is no time"),
        ("nan", "is no time"),
    ],
)
def test_until_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^--until: ") as refused:
        read_until(text, AT)
    assert words in str(refused.value)


def test_why_is_one_line_that_can_be_printed() -> None:
    assert read_why("  load\n test ") == "load test"
    for text in ("", " \n", "x" * 121, "a\x1b[2J"):
        with pytest.raises(ValueError, match=r"^--why: "):
            read_why(text)


def test_names_may_say_their_kind() -> None:
    assert read_name("chat", TARGETS) == (TARGETS, "chat")
    assert read_name("rpol/chat", TARGETS) == ((POLICY,), "chat")
    assert read_name("InferenceEngine/a", TARGETS) == ((ENGINE,), "a")
    for text, words in (
        ("ieng/a", "right would be NAME or rpol/NAME"),
        ("../secrets/x", "'../secrets' can't be used here"),
        ("a b", "no resource's name"),
        ("", "no resource's name"),
    ):
        with pytest.raises(ValueError, match=r"right would be") as refused:
            read_name(text, (POLICY,))
        assert words in str(refused.value)


def test_freeze_and_resume(api: Any) -> None:
    report = hold(api, "freeze", "ns", "chat", SOON, "load test", AT)
    assert api.annotations("routingpolicies", "chat") == {FREEZE_UNTIL: SOON, WHY: "load test"}
    assert api.managers == ["headrace-cli"]
    assert report_lines(report, AT, Style(False)) == [
        "RoutingPolicy ns/chat is frozen until 2026-11-29T14:00:00Z (2 h from now): load test",
        "kubectl describe rpol chat -n ns shows it",
        "",
        "what stands in this namespace:",
        "  rpol  chat  frozen  2026-11-29T14:00:00Z  2 h from now  load test",
    ]
    ended = resume(api, TARGETS, "ns", "chat", AT + 60)
    assert api.annotations("routingpolicies", "chat") == {}
    assert report_lines(ended, AT + 60, Style(False)) == [
        "RoutingPolicy ns/chat is frozen no longer; it was until 2026-11-29T14:00:00Z (1 h 59 min from now): load test",
        "no break-glass stands in this namespace",
    ]
    again = resume(api, TARGETS, "ns", "chat", AT + 60)
    assert (again.changed, report_lines(again, AT, Style(False))[0]) == (
        False,
        "nothing to resume: neither frozen nor drained",
    )


def test_what_stood_before_is_told(api: Any) -> None:
    api.put("inferenceengines", "a", drain="2026-11-29T13:00:00Z", why="new driver")
    report = hold(api, "drain", "ns", "a", SOON, "it takes longer", AT)
    assert "before: until 2026-11-29T13:00:00Z (1 h from now): new driver" in report_lines(report, AT, Style(False))


def test_what_stands_tells_held_from_expired_and_ignored(api: Any) -> None:
    api.put("inferenceengines", "b", drain="2026-11-29T11:00:00Z")
    api.put("inferenceengines", "c", drain="soon\x1b[2J", why="x")
    api.put("routingpolicies", "late", freeze="2026-12-24T00:00:00Z")
    report = hold(api, "drain", "ns", "a", SOON, "why", AT)
    assert [(glass.name, glass.state) for glass in report.standing] == [
        ("a", "InForce"),
        ("b", "Expired"),
        ("c", "Ignored"),
        ("late", "Ignored"),
    ]
    lines = "\n".join(report_lines(report, AT, Style(False)))
    assert "over since 1 h" in lines
    assert "without effect: no time in RFC 3339" in lines
    assert "without effect: more than 24 h ahead" in lines
    assert "\x1b" not in lines


def test_a_name_that_both_kinds_have_resumes_what_is_held(api: Any) -> None:
    api.put("inferenceengines", "chat", drain=SOON, why="x")
    report = resume(api, TARGETS, "ns", "chat", AT)
    assert [glass.kind for glass in report.previous] == ["InferenceEngine"]


def test_an_object_that_changes_meanwhile_is_read_again(api: Any) -> None:
    api.racing = 3
    assert hold(api, "freeze", "ns", "chat", SOON, "x", AT).changed
    api.racing = 4
    with pytest.raises(EnvironmentFailed, match="others keep changing it, try again"):
        hold(api, "freeze", "ns", "chat", SOON, "x", AT)


def test_what_is_absent_is_named_with_what_is_there(api: Any) -> None:
    with pytest.raises(InputError, match="no RoutingPolicy ns/chta; there are chat"):
        hold(api, "freeze", "ns", "chta", SOON, "x", AT)
    with pytest.raises(InputError, match="no RoutingPolicy or InferenceEngine ns/b; there are a, chat"):
        resume(api, TARGETS, "ns", "b", AT)
    api.objects.clear()
    with pytest.raises(InputError, match="nor any other in that namespace; right would be -n NAMESPACE"):
        hold(api, "drain", "ns", "a", SOON, "x", AT)


@pytest.mark.parametrize(
    ("verb", "fault", "words"),
    [
        ("get", KubeFault(403, "Forbidden", "cannot get"), "a Role that allows to get routingpolicies.headrace.dev"),
        ("patch", KubeFault(403, "Forbidden", "cannot"), "kubectl auth can-i patch routingpolicies.headrace.dev -n ns"),
        ("get", KubeFault(404, "NotJson", "404 page not found"), "this cluster has no routingpolicies.headrace.dev"),
        ("get", KubeFault(0, "NoAnswer", "the API server: timed out"), "cannot freeze ns/chat: the API server"),
    ],
    ids=["get", "patch", "no-crd", "no-answer"],
)
def test_what_the_api_server_refuses_is_told_in_words(api: Any, verb: str, fault: KubeFault, words: str) -> None:
    api.faults[verb, "routingpolicies"] = fault
    with pytest.raises(EnvironmentFailed) as failed:
        hold(api, "freeze", "ns", "chat", SOON, "x", AT)
    assert words in str(failed.value)
    assert api.annotations("routingpolicies", "chat") == {}


def test_who_may_not_list_still_freezes(api: Any) -> None:
    api.faults["list", "routingpolicies"] = KubeFault(403, "Forbidden", "cannot list")
    report = hold(api, "freeze", "ns", "chat", SOON, "x", AT)
    assert report.notes == ("what else stands is not known: cannot list",)


@pytest.mark.parametrize(
    ("plural", "action", "spec", "note"),
    [
        ("routingpolicies", "freeze", {"mode": "Shadow"}, "it publishes nothing in any case"),
        ("inferenceengines", "drain", {"state": "Disabled"}, "it takes no new requests in any case"),
        ("inferenceengines", "drain", None, ""),
    ],
)
def test_a_hold_without_effect_says_so(api: Any, plural: str, action: Any, spec: Any, note: str) -> None:
    api.put(plural, "x", spec=spec)
    assert note in "".join(hold(api, action, "ns", "x", SOON, "why", AT).notes)


def test_an_annotation_out_of_git_is_told_to_come_back(api: Any) -> None:
    """Case of a freeze written into the repository: self-heal puts it back after a resume."""
    api.put("routingpolicies", "chat", freeze=SOON)
    (raw,) = (value for key, value in api.objects.items() if key.endswith("/chat"))
    fields = {"f:metadata": {"f:annotations": {f"f:{FREEZE_UNTIL}": {}}}}
    raw["metadata"]["managedFields"] = [
        {"manager": "argocd-controller", "fieldsV1": fields},
        {"manager": "odd", "fieldsV1": None},
        None,
    ]
    assert "argocd-controller had set it too" in resume(api, TARGETS, "ns", "chat", AT).notes[0]


def test_lengths_of_time() -> None:
    assert [length(at) for at in (45, 720, 7200, 5400, 86_340)] == [
        "45 s",
        "12 min",
        "2 h",
        "1 h 30 min",
        "23 h 59 min",
    ]


def called(command: Command, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_the_commands(api: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(freeze, "cluster", lambda arguments: api)
    assert called(freeze.FREEZE, "rpol/chat", "-n", "ns", "--until", "1h", "--why", "x", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, schema_of("break-glass.schema.json"))
    assert report["targets"][0]["state"] == "InForce"
    assert called(freeze.DRAIN, "a", "-n", "ns", "--until", "1h", "--why", "x") == 0
    assert "InferenceEngine ns/a is drained until" in capsys.readouterr().out
    assert called(freeze.RESUME, "a", "-n", "ns", "-o", "yaml") == 0
    assert "action: resume" in capsys.readouterr().out


def test_every_fault_of_the_arguments_is_told_at_once() -> None:
    with pytest.raises(InputError) as refused:
        called(freeze.FREEZE, "ieng/a", "--until", "never", "--why", "")
    assert len(refused.value.faults) == 3


def test_a_hold_needs_a_time_and_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        called(freeze.DRAIN, "a")
    assert "--until, --why" in capsys.readouterr().err


def test_without_a_cluster_the_manifests_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailed, match=r"no cluster: .*\. With run --standalone .*freeze-until: 2") as failed:
        called(freeze.FREEZE, "chat", "--until", "1h", "--why", "x", "--kubeconfig", str(tmp_path / "none"))
    assert "headrace.dev/why: x" in str(failed.value)
    assert break_glass.MAX_WHY == 120
