"""Which pod a typed name means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidemill.cli.status import find_pod
from tidemill.model.errors import SpecError
from tidemill.report import PodRow


def row(name: str, workload: str, state: str = "waiting") -> PodRow:
    since = datetime(2026, 11, 16, tzinfo=UTC)
    return PodRow(f"ml/{name}", state, workload, "train", "", "", 8, since, None, "", "", None)


GANG = (
    row("j-10-0-0", "Job/j-10"),
    row("j-1-0-0", "Job/j-1", "running"),
    row("j-1-1-0", "Job/j-1"),
    row("j-2-0-0", "Job/j-2"),
    row("web-0", "Deployment/web", "running"),
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("j-1", ("ml/j-1-1-0", 0)),
        ("j-10", ("ml/j-10-0-0", 0)),
        ("j", ("ml/j-1-1-0", 2)),
        ("ml/j-2", ("ml/j-2-0-0", 0)),
        ("web", ("ml/web-0", 0)),
        ("j-1-0-0", ("ml/j-1-0-0", 0)),
        ("j-2-0", ("ml/j-2-0-0", 0)),
    ],
)
def test_a_workload_name_finds_its_first_pending_pod(written, meant):
    found, others_wait = find_pod(written, GANG)
    assert (found.name, others_wait) == meant


def test_jobs_of_a_stream_are_ordered_by_number():
    found, _ = find_pod("j", [row("j-10-0-0", "Job/j-10"), row("j-9-0-0", "Job/j-9")])
    assert found.name == "ml/j-9-0-0"


@pytest.mark.parametrize(
    ("written", "says"),
    [("ml/", "matches several pods"), ("wbe-0", "did you mean ml/web-0"), ("zzz", "there are: ml/j-1-0-0, ")],
)
def test_an_unknown_name_gives_the_known_ones(written, says):
    with pytest.raises(SpecError, match=says):
        find_pod(written, GANG)


CLUSTER = [
    row("chat-5d9c-x", "Deployment/ml/chat"),
    replace(row("chat-7f8b-y", "Deployment/web/chat"), name="web/chat-7f8b-y"),
    row("train-7-abcde", "Job/ml/train-7"),
]


@pytest.mark.parametrize("written", ["ml/chat", "Deployment/ml/chat"])
def test_a_workload_of_a_cluster_is_named_with_its_namespace(written: str) -> None:
    assert find_pod(written, CLUSTER)[0].workload == "Deployment/ml/chat"


@pytest.mark.parametrize("written", ["train-7", "Job/train-7", "ml/train-7", "Job/ml/train-7"])
def test_a_short_name_will_do_where_it_is_unique(written: str) -> None:
    assert find_pod(written, CLUSTER)[0].name.endswith("train-7-abcde")


@pytest.mark.parametrize("written", ["chat", "Deployment/chat"])
def test_a_short_name_of_two_namespaces_is_refused_with_both(written: str) -> None:
    with pytest.raises(SpecError, match="name one of: Deployment/ml/chat, Deployment/web/chat"):
        find_pod(written, CLUSTER)
