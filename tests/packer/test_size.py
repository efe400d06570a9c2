"""Packing at size: the work for a pod does not grow with the number of pods, and neither does its price."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.packer.problems import sound
from tidemill.bench.bounds import lower_bound
from tidemill.bench.mixes import build
from tidemill.decide.packer import node_growth, placement_order
from tidemill.decide.packer.bins import Bin
from tidemill.spec.names import LABEL_ZONE


def test_a_gang_does_not_look_at_full_nodes(monkeypatch: pytest.MonkeyPatch):
    looked = 0
    fit_count = Bin.fit_count

    def counted(self: Bin, requests: tuple[tuple[int, int], ...]) -> int:
        nonlocal looked
        looked += 1
        return fit_count(self, requests)

    monkeypatch.setattr(Bin, "fit_count", counted)
    problem = build("gpu", 8_000)
    sound(problem)
    assert looked < len(problem.pods)


def test_equal_pods_are_not_copied_for_each_node_that_grows(monkeypatch: pytest.MonkeyPatch):
    taken = 0

    class Counted(list):
        def __getitem__(self, key):
            nonlocal taken
            found = super().__getitem__(key)
            taken += len(found) if isinstance(key, slice) else 1
            return Counted(found) if isinstance(key, slice) else found

    grow_or_open = node_growth._grow_or_open

    def with_counted_pods(packing, group, pods, sites, ahead):
        return grow_or_open(packing, group, Counted(pods), sites, ahead)

    monkeypatch.setattr(node_growth, "_grow_or_open", with_counted_pods)
    monkeypatch.setattr(placement_order, "open_evenly", lambda *_: None)  # nodes open one after the other
    problem = build("preferences", 4_000)
    sound(problem)
    assert 0 < taken <= 2 * len(problem.pods)


def test_pods_that_need_a_host_each_go_where_others_may_share_it():
    """All pods with the affinity are in one zone, and only they may share a host with a pod of the host spread."""
    problem = build("one-label", 2_000)
    solution = sound(problem)
    zones: Counter[str] = Counter()
    for node in solution.opened:
        zones[node.option.labels[LABEL_ZONE]] += 1
    assert max(zones.values()) > 0.9 * len(solution.opened)


@pytest.mark.parametrize(("mix", "most"), [("shapes", 1.02), ("no-anchor", 1.03), ("one-label", 1.045)])
def test_five_thousand_pods_cost_little_more_than_they_must(mix: str, most: float):
    """A node that is full of memory while its CPU is idle finds a pod that wants the other."""
    problem = build(mix, 5_000)
    assert sound(problem).price < most * lower_bound(problem)


def test_very_many_unlike_pods_are_placed_in_parts_at_nearly_the_same_price(monkeypatch: pytest.MonkeyPatch):
    """Parts of a thousand lose a few percent, the real ones of ten thousand a few tenths of one."""
    problem = build("shapes", 3_000)
    together = sound(problem)
    monkeypatch.setattr(placement_order, "_PART", 1_000)
    apart = sound(problem)
    assert together.price < apart.price < 1.05 * together.price
    assert len(apart.opened) == len(together.opened)


@pytest.mark.slow
def test_a_hundred_thousand_pods_without_anchors_cost_little_more_than_they_must():
    problem = build("no-anchor", 100_000)
    assert sound(problem).price < 1.04 * lower_bound(problem)
