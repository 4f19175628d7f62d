"""All that the staged operator and routers asked of the API server in this run, by its audit log, beside their roles.

The last module of the run by its name: the more ran before, the more it sees. That every right is used is shown where
every right is needed, in test_install.py.
"""

from __future__ import annotations

import pytest

from support.audit import asked_by, granted
from support.helm import template
from support.stage import DEMAND, SAMPLE, SYSTEM, Stage

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

ACCOUNTS = ("headrace-operator", *(f"headrace-router-{name}" for name in DEMAND))


@pytest.mark.parametrize("account", ACCOUNTS)
def test_nothing_was_asked_that_is_not_granted(stage: Stage, account: str) -> None:
    """No call was refused, and no role is wider than the chart's: nothing was ever asked of Secrets, say."""
    asked = asked_by(stage.cluster.audit().splitlines(), f"{SYSTEM}:{account}")
    assert asked
    assert [one for one in asked if not one.granted] == []
    rights = granted(template(SAMPLE / "values.yaml").values(), account)
    assert {(one.verb, one.resource) for one in asked} <= rights
    assert "secrets" not in {resource for _, resource in rights}
