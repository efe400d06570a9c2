"""TR-11: blocks of a scenario with less overlap than booting and loading take."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, block, joined, pool, scenario

pytestmark = pytest.mark.requirement("TR-11")
SERVING = pool("sources: [{type: block}]", "labels: {tier: serve}")
CHAT = "{name: chat, replicas: 2, minAvailable: 1, load: 8m, nodeSelector: {tier: serve}, %s}"


def codes(read: Reader, first_from: str, promise: str = "zeroDowntime: true") -> list[str]:
    """Block a runs for three days from the start; b comes at another time."""
    blocks = [
        block("a", duration="3d", more="pool: training"),
        block("b", duration="3d", more=f"pool: training, from: {first_from}"),
    ]
    played = scenario(f"reservations: [{', '.join(blocks)}]", f"services: [{CHAT % promise}]")
    return [each.code for each in read(joined(NODE_CLASS, SERVING, played)).problems]


@pytest.mark.parametrize(("starts", "warned"), [("2d", False), ("3d", True), ("3d12h", True), ("5d", False)])
def test_warns_of_a_successor_block_that_starts_too_late(read: Reader, starts: str, warned: bool) -> None:
    assert codes(read, starts) == (["TR-11"] if warned else [])


def test_no_warning_without_zero_downtime(read: Reader) -> None:
    assert codes(read, "3d", "zeroDowntime: false") == []


def test_an_overlap_of_some_hours_is_time_enough(read: Reader) -> None:
    assert codes(read, "3d, overlap: 4h") == []
    assert codes(read, "3d, overlap: 10m") == ["TR-11"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("from: 3d, overlap: 25h", "'overlap' must be shorter than a day, not 1d1h: for whole days write"),
        ("from: 1h, overlap: 23h", "which is not after the start of the scenario"),
        ("type: odcr, from: 3d, overlap: 4h", "an on-demand reservation starts at any minute; leave out 'overlap'"),
    ],
)  # fmt: skip
def test_an_overlap_that_no_block_could_have_is_refused(read: Reader, written: str, said: str) -> None:
    played = scenario(f"reservations: [{block('b', duration='3d', more=f'pool: training, {written}')}]")
    problems = [each for each in read(joined(NODE_CLASS, SERVING, played)).problems if each.code == "value"]
    assert [said in each.message for each in problems] == [True]
