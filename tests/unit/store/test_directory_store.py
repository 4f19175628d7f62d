"""A directory of manifests: good ones beside bad ones, the last valid spec, generations, and vanished directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_operator.store.directory import DirectoryStore
from headrace_operator.store.generations import stored_generations
from headrace_operator.store.resources import ResourceName, Resources
from support.engine_manifests import engine_dict, policy_dict

URL = "http://127.0.0.1:1"


def write(directory: Path, name: str, *documents: dict[str, Any]) -> Path:
    path = directory / name
    path.write_text(yaml.safe_dump_all(documents))
    return path


def names(resources: Resources) -> list[str]:
    return [one.metadata.name for one in resources.all()]


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    write(tmp_path, "engines.yaml", engine_dict("a", URL), engine_dict("c", URL))
    write(tmp_path, "policy.yaml", policy_dict())
    return DirectoryStore(tmp_path)


def test_good(store: DirectoryStore) -> None:
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c", "chat"]
    assert (resources.faults, resources.complete) == ((), True)
    assert store.look(thorough=False) is resources
    assert store.look(thorough=True) is resources


BAD_SPECS = [
    pytest.param({"capacity": {"perReplica": {"requestsPerSecond": "ten"}}}, id="bad-1: a word for a number"),
    pytest.param({"capacity": None, "models": None, "endpoints": None}, id="bad-2: an empty spec"),
    pytest.param({"address": "http://b:8000"}, id="bad-5: a field of an earlier version"),
]


@pytest.mark.parametrize("spec", BAD_SPECS)
def test_a_bad_one_stops_nobody(store: DirectoryStore, tmp_path: Path, spec: dict[str, Any]) -> None:
    """Case CRD-01: the good ones are served whatever stands beside them, and the bad one is named.

    https://github.com/rook/rook/issues/3480
    """
    write(tmp_path, "bad.yaml", engine_dict("b", URL, **spec))
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c", "chat"]
    assert ResourceName("InferenceEngine", "inf/b") in resources.refused
    assert not resources.complete


@pytest.mark.parametrize("spec", [None, "missing"], ids=["bad-3: null", "bad-4: no spec"])
def test_no_spec(store: DirectoryStore, tmp_path: Path, spec: str | None) -> None:
    """Case CRD-01, bad-3 and bad-4."""
    document = engine_dict("b", URL) | {"spec": None}
    if spec == "missing":
        del document["spec"]
    write(tmp_path, "bad.yaml", document)
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c", "chat"]
    assert len(resources.faults) == 1


def test_the_last_valid_spec_is_kept(store: DirectoryStore, tmp_path: Path) -> None:
    """Case CRD-01: an edit of a good engine into a bad one keeps its last valid values, and says so.

    https://github.com/apache/flink-kubernetes-operator/pull/196
    """
    before = store.look(thorough=False)
    bad = engine_dict("c", URL, capacity={"perReplica": {"requestsPerSecond": -1}})
    write(tmp_path, "engines.yaml", engine_dict("a", URL), bad)
    after = store.look(thorough=False)
    assert after.engines == before.engines
    assert "-1" in after.refused[ResourceName("InferenceEngine", "inf/c")]
    write(tmp_path, "engines.yaml", engine_dict("a", URL), engine_dict("c", "http://127.0.0.1:9"))
    mended = store.look(thorough=False)
    assert (mended.refused, mended.complete) == ({}, True)
    assert [(one.metadata.name, one.metadata.generation) for one in mended.engines] == [("a", 1), ("c", 2)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("apiVersion: [", id="not YAML"),
        pytest.param("", id="emptied"),
        pytest.param("\tkind: x", id="tabs"),
        pytest.param("kind: InferenceEngine\nspec: {}\n", id="no name"),
    ],
)
def test_a_file_that_stops_parsing_keeps_its_resources(store: DirectoryStore, tmp_path: Path, text: str) -> None:
    store.look(thorough=False)
    (tmp_path / "engines.yaml").write_text(text)
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c", "chat"]
    assert not resources.complete
    assert set(resources.refused) == {
        ResourceName("InferenceEngine", "inf/a"),
        ResourceName("InferenceEngine", "inf/c"),
    }
    assert all("engines.yaml" in reason for reason in resources.refused.values())


def test_a_deleted_file_is_deleted(store: DirectoryStore, tmp_path: Path) -> None:
    store.look(thorough=False)
    (tmp_path / "policy.yaml").unlink()
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c"]
    assert resources.complete


def test_an_emptied_directory_keeps_everything(store: DirectoryStore, tmp_path: Path) -> None:
    """The API page, Mass loss: an empty list must not become an outage."""
    store.look(thorough=False)
    for path in tmp_path.glob("*.yaml"):
        path.unlink()
    resources = store.look(thorough=False)
    assert names(resources) == ["a", "c", "chat"]
    assert not resources.complete
    assert "no manifests there any more" in resources.faults[0]
    assert store.look(thorough=False) is resources


def test_an_empty_directory_at_start_says_nothing_for_sure(tmp_path: Path) -> None:
    """The API page, Mass loss: tables of an earlier start must not go because a volume is not mounted yet."""
    assert not DirectoryStore(tmp_path).look(thorough=False).complete


def test_a_vanished_directory_keeps_everything(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    write(directory, "a.yaml", engine_dict("a", URL))
    store = DirectoryStore(directory)
    store.look(thorough=False)
    directory.rename(tmp_path / "elsewhere")
    resources = store.look(thorough=False)
    assert names(resources) == ["a"]
    assert "not a directory that can be read" in resources.faults[0]
    (tmp_path / "elsewhere").rename(directory)
    assert store.look(thorough=False).complete


def test_a_file_that_cant_be_read_keeps_its_resources(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.look(thorough=False)
    real = Path.open

    def denied(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "engines.yaml":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    resources = store.look(thorough=True)
    assert names(resources) == ["a", "c", "chat"]
    assert "right would be a readable file" in resources.faults[-1]


def test_a_change_that_stamps_do_not_show_is_found_by_content(store: DirectoryStore, tmp_path: Path) -> None:
    store.look(thorough=False)
    path = tmp_path / "engines.yaml"
    stamp = path.stat()
    path.write_text(path.read_text().replace("127.0.0.1:1", "127.0.0.1:2"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert store.look(thorough=True).engines[0].spec.endpoints.urls == ("http://127.0.0.1:2",)


def test_hidden_files_folders_and_other_kinds_are_left_alone(store: DirectoryStore, tmp_path: Path) -> None:
    before = store.look(thorough=False)
    (tmp_path / ".engines.yaml.swp").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.yaml").write_text("[")
    assert store.look(thorough=False) is before


def test_generations_go_on_over_a_restart(tmp_path: Path) -> None:
    plain = engine_dict("a", URL)
    write(tmp_path, "a.yaml", plain)
    kept = stored_generations([("InferenceEngine", "inf/a", 7, plain["spec"]), ("Other", "inf/x", 1, {})])
    assert DirectoryStore(tmp_path, generations=kept).look(thorough=False).engines[0].metadata.generation == 7
    changed = stored_generations([("InferenceEngine", "inf/a", 7, {"spec": "of another version"})])
    assert DirectoryStore(tmp_path, generations=changed).look(thorough=False).engines[0].metadata.generation == 8
