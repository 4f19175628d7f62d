"""The Dockerfiles hold what hack/images.toml lists, as the test cluster's images do.

They can't be built here (no registry), so this reads them: instruction by instruction.
"""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from support.checkout import ROOT

LIST = tomllib.loads((ROOT / "hack" / "images.toml").read_text())
OURS = ["operator", "router"]
LAST = {"operator": "9100", "router": "8080 9090"}


def instructions(which: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, its arguments), continued lines joined."""
    text = (ROOT / which / "Dockerfile").read_text()
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def stages(which: str) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = [[]]
    for instruction in instructions(which):
        if instruction[0] == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def of(instructions: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for found, rest in instructions if found == word]


@pytest.mark.parametrize("which", OURS)
def test_base_can_be_chosen_and_is_slim(which: str) -> None:
    before, *builds = stages(which)
    assert of(before, "ARG") == ["PYTHON_IMAGE=python:3.13-slim"]
    assert [of(stage, "FROM") for stage in builds] == [["${PYTHON_IMAGE} AS build"], ["${PYTHON_IMAGE}"]]


@pytest.mark.parametrize("which", OURS)
def test_built_from_what_the_list_says(which: str) -> None:
    _, build, _ = stages(which)
    copied = [source for rest in of(build, "COPY") for source in rest.split()[:-1]]
    compiled = LIST[which]["compiled"]
    locks = [f"requirements/{name}.txt" for name in ("compile" if compiled else "build", LIST[which]["requirements"])]
    assert sorted(copied) == sorted([*locks, *LIST["sources"], *(LIST["compiler"] if compiled else [])])


@pytest.mark.parametrize("which", OURS)
def test_compiled_where_the_list_says_so(which: str) -> None:
    _, build, last = stages(which)
    (built,) = [rest for rest in of(build, "RUN") if "hatchling build" in rest]
    compilers = [rest for rest in of(build, "RUN") if "apt-get install" in rest and " gcc libc6-dev" in rest]
    assert LIST[which]["compiled"] == ("HATCH_BUILD_HOOKS_ENABLE=1" in built) == bool(compilers)
    assert not re.search(r"gcc|HATCH", str(last))


def test_a_plain_wheel_is_pure_and_the_compiled_one_is_made_by_what_checks_the_types() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    hook = hatch["targets"]["wheel"]["hooks"]["custom"]
    assert hook["enable-by-default"] is False
    assert hook["path"].startswith(tuple(LIST["compiler"]))
    (mypy,) = [name for name in hook["dependencies"] if name.startswith("mypy")]
    for lock in ("dev", "compile"):
        assert re.search(rf"(?m)^{re.escape(mypy)} ", (ROOT / "requirements" / f"{lock}.txt").read_text()), lock


@pytest.mark.parametrize("which", OURS)
def test_what_is_installed_is_locked_by_hash(which: str) -> None:
    _, build, last = stages(which)
    parts = [part for rest in of(build, "RUN") for part in rest.split("&&")]
    installs = [part for part in parts if " install " in part and "apt-get" not in part]
    assert len(installs) == 3
    for install in installs:
        locked = "--require-hashes" in install and "--only-binary=:all:" in install
        assert locked or "--no-index" in install, install
    assert "install" not in " ".join(of(last, "RUN")).replace("uninstall", "")


@pytest.mark.parametrize("which", OURS)
def test_last_stage_has_no_compiler_and_no_installer(which: str) -> None:
    *_, last = stages(which)
    assert of(last, "COPY") == ["--from=build /opt/headrace /opt/headrace"]
    assert not re.search(r"apt|gcc|build-essential", " ".join(of(last, "RUN")))
    assert re.search(r"pip uninstall --yes .*pip\b", of(last, "RUN")[0])
    assert not of(last, "ADD")


@pytest.mark.parametrize("which", OURS)
def test_started_as_the_list_says(which: str) -> None:
    *_, last = stages(which)
    assert of(last, "USER") == [LIST["user"]]
    assert of(last, "EXPOSE") == [LAST[which]]
    assert of(last, "ENTRYPOINT") == [str(LIST["entrypoint"]).replace("'", '"')]
    (environment,) = of(last, "ENV")
    assert dict(pair.split("=", 1) for pair in environment.split()[1:]) == LIST["environment"]
    assert environment.startswith("PATH=/opt/headrace/bin:")


@pytest.mark.parametrize("which", OURS)
def test_locked_requirements_hold_nothing_that_must_not_be_there(which: str) -> None:
    text = (ROOT / "requirements" / f"{LIST[which]['requirements']}.txt").read_text()
    locked = set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))
    assert len(locked) > 10
    assert locked.isdisjoint(LIST[which]["without"])


def test_the_build_context_is_what_the_list_names() -> None:
    """.dockerignore leaves everything out but that: no .git, no virtual environment, no kubeconfig lying about."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert let_in == {*LIST["sources"], *LIST["compiler"], "requirements", "hack"}
    assert "hack/*" in lines


def test_the_release_builds_each_of_them_for_two_platforms_with_its_parts_listed_and_signed() -> None:
    """The workflow itself has never run: this holds what it says it does."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    job = workflow["jobs"]["image"]
    assert sorted(job["strategy"]["matrix"]["image"]) == OURS
    (build,) = [
        step["with"] for step in job["steps"] if str(step.get("uses", "")).startswith("docker/build-push-action@")
    ]
    assert build["file"] == "${{ matrix.image }}/Dockerfile"
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert build["sbom"] is True
    assert any("cosign sign" in step.get("run", "") for step in job["steps"])
    # A job has the rights that it names, and the workflow none of its own.
    assert workflow["permissions"] == {}
    for name, one in workflow["jobs"].items():
        assert one["permissions"]["contents"] == "read", name
        assert all(
            step["with"]["persist-credentials"] is False
            for step in one["steps"]
            if "checkout@" in str(step.get("uses"))
        )
