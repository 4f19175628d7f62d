"""Who edited a resource last: managedFields as API servers write them, and anything else without a fall."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_api.base import MAX_EDITOR
from headrace_operator.kube.editor import cut_entry, editor_of

SPEC = {"f:spec": {"f:mode": {}}}
LABELS = {"f:metadata": {"f:labels": {"f:tier": {}}}}
SIGNED = SPEC | {"f:metadata": {"f:annotations": {"f:headrace.dev/git-revision": {}}}}
NOTES = {"f:metadata": {"f:annotations": {"f:headrace.dev/why": {}}}}


def wrote(manager: str, time: int, fields: Any = SPEC, **more: Any) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "time": f"2026-11-29T12:00:{time:02}Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def metadata(*entries: dict[str, Any], generation: int = 1, **more: Any) -> dict[str, Any]:
    return {"uid": "u", "generation": generation, "managedFields": list(entries), **more}


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        ("kubectl-client-side-apply", "kubectl apply"),
        ("kubectl", "kubectl apply"),
        ("kubectl-edit", "kubectl edit"),
        ("kubectl-patch", "kubectl patch"),
        ("argocd-controller", "Argo CD"),
        ("kustomize-controller", "Flux"),
        ("terraform-provider", "terraform-provider"),
        ("x\x1b[2Jy\n", "x?[2Jy?"),
        ("long" * 30, "long" * 9 + "lon…"),
        ("before-first-apply", ""),
    ],
)
def test_managers_are_named_as_people_know_them(manager: str, name: str) -> None:
    assert editor_of(metadata(wrote(manager, 1))) == name


def test_status_and_annotations_are_no_edits() -> None:
    status = wrote("headrace-operator", 9, {"f:status": {}}, subresource="status", operation="Apply")
    found = metadata(wrote("kubectl-edit", 1), wrote("headrace-cli", 5, NOTES), status)
    assert editor_of(found) == "kubectl edit"


def test_what_was_said_stands_until_spec_or_labels_change() -> None:
    before = metadata(wrote("kubectl-edit", 1), wrote("argocd-controller", 2))
    touched = metadata(wrote("kubectl-edit", 7), wrote("argocd-controller", 2), annotations={"a": "b"})
    assert editor_of(touched, before, "Argo CD") == "Argo CD"
    labelled = metadata(*before["managedFields"], wrote("kubectl-label", 8, LABELS), labels={"tier": "prod"})
    assert editor_of(labelled, before, "Argo CD") == "kubectl label"


def test_whoever_wrote_since_is_the_editor_of_a_new_generation() -> None:
    before = metadata(wrote("kubectl-edit", 8), wrote("argocd-controller", 2))
    after = metadata(wrote("argocd-controller", 7), wrote("kubectl-edit", 8), generation=2)
    assert editor_of(after, before, "kubectl edit") == "Argo CD"


def test_an_annotation_set_meanwhile_does_not_hide_the_editor() -> None:
    before = metadata(wrote("kubectl-edit", 1))
    after = metadata(wrote("kubectl-edit", 5), wrote("headrace-cli", 6, NOTES), generation=2)
    assert editor_of(after, before) == "kubectl edit"


def test_two_edits_within_a_second_are_of_the_same_editor() -> None:
    before = metadata(wrote("kubectl-edit", 5), wrote("argocd-controller", 2))
    assert editor_of(before | {"generation": 2}, before) == "kubectl edit"


def test_who_only_took_a_field_out_of_anothers_is_not_known() -> None:
    """The API server keeps no book of that writer: nobody else is blamed."""
    both = {"f:spec": {"f:mode": {}, "f:queue": {}}}
    before = metadata(wrote("kubectl-client-side-apply", 1, both))
    assert editor_of(metadata(wrote("kubectl-client-side-apply", 1), generation=2), before, "kubectl apply") == ""


def test_a_resource_of_the_same_name_made_anew_has_a_new_editor() -> None:
    before = metadata(wrote("kubectl-create", 1))
    assert editor_of(metadata(wrote("argocd-controller", 3)) | {"uid": "v"}, before, "kubectl create") == "Argo CD"


COMMIT = "3f2a91c0" * 5


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        (COMMIT, "Argo CD at 3f2a91c"),
        (f"main@sha1:{COMMIT}", "Argo CD at main@3f2a91c"),
        ("v1.4.2", "Argo CD at v1.4.2"),
        ("", "Argo CD"),
        ("a\nb" * 60, "Argo CD at " + ("a?b" * 13) + "…"),
        (7, "Argo CD"),
    ],
    ids=["commit", "flux", "tag", "empty", "hostile", "no-text"],
)
def test_the_git_revision_is_told_where_one_was_left(revision: Any, said: str) -> None:
    annotations = {"headrace.dev/git-revision": revision}
    assert editor_of(metadata(wrote("argocd-controller", 1, SIGNED), annotations=annotations)) == said


def test_a_revision_that_another_writer_left_is_not_this_ones() -> None:
    annotations = {"headrace.dev/git-revision": COMMIT}
    books = wrote("argocd-controller", 2), wrote("kubectl", 1, SIGNED)
    assert editor_of(metadata(*books, annotations=annotations)) == "Argo CD"


def test_entries_without_their_lists_of_fields_read_the_same() -> None:
    both = {"f:spec": {"f:mode": {}, "f:queue": {}}}
    annotations = {"headrace.dev/git-revision": COMMIT}
    before = [wrote("kubectl-edit", 1, both), wrote("argocd-controller", 2, SIGNED), wrote("headrace-cli", 3, NOTES)]
    for after in (
        [wrote("kubectl-edit", 1), *before[1:]],
        [*before[:1], wrote("argocd-controller", 4, SIGNED), *before[2:]],
        before,
    ):
        whole = [metadata(*books, annotations=annotations) for books in (before, after)]
        cut = [metadata(*map(cut_entry, books), annotations=annotations) for books in (before, after)]
        assert editor_of(cut[0]) == editor_of(whole[0])
        said = editor_of(whole[1] | {"generation": 2}, whole[0])
        assert editor_of(cut[1] | {"generation": 2}, cut[0]) == said


def test_a_person_is_not_credited_with_the_revision_that_a_tool_left() -> None:
    """An edit by hand on a resource out of Git leaves the tool's annotation where it is."""
    annotations = {"headrace.dev/git-revision": COMMIT}
    assert editor_of(metadata(wrote("kubectl-edit", 1), annotations=annotations)) == "kubectl edit"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("manager", "operation", "time", "fieldsV1", "subresource"), JSON)
)
BOOKS = st.fixed_dictionaries(
    {}, optional={"managedFields": st.lists(ENTRY, max_size=4) | JSON, "uid": JSON, "annotations": JSON, "labels": JSON}
)


@given(BOOKS, st.none() | BOOKS)
def test_whatever_stands_there_never_raises(now: dict[str, Any], before: dict[str, Any] | None) -> None:
    said = editor_of(now, before)
    assert len(said) <= MAX_EDITOR
    assert said.isprintable()
