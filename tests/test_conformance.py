"""The requirement table: complete, and strict about what is declared done."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.requirements import Evidence, Requirement, complaints, of_real_tier, read, table

LAST = {"CB": 18, "SM": 9, "MG": 7, "KP": 9, "PE": 23, "NT": 1, "AE": 17, "UI": 10, "TR": 18, "GB": 6}
DONE = Requirement("CB-2", "refuses", done=True)
OPEN = Requirement("CB-3", "buys", done=False)


def evidence(*, passed=(), failed=()):
    found = Evidence()
    for node_id in passed:
        found.add(node_id, passed=True)
    for node_id in failed:
        found.add(node_id, passed=False)
    return {"CB-2": found}


def test_lists_every_requirement_once_in_order():
    assert list(read()) == [f"{group}-{n}" for group, last in LAST.items() for n in range(1, last + 1)]
    assert max(Counter(r.title for r in read().values()).values()) == 1


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "no test proves it"),
        (evidence(failed=["t::a"]), "failing tests: t::a"),
        (evidence(passed=["t::a"], failed=["t::b"]), "failing tests: t::b"),
        (evidence(passed=["t::a[1]"], failed=["t::a[2]"]), "failing tests: t::a"),
    ],
)
def test_complains_about_a_done_requirement_without_clean_proof(found, words):
    (complaint,) = complaints([DONE, OPEN], found)
    assert complaint.startswith("CB-2 is declared done")
    assert words in complaint


def test_is_content_with_a_proof_and_with_what_is_not_declared_done():
    assert not list(complaints([DONE, OPEN], evidence(passed=["t::a"])))


def test_table_names_tests_and_counts_their_cases():
    lines = list(table([DONE, OPEN], evidence(passed=["t::a[1]", "t::a[2]", "t::b"])))
    assert lines[0].split() == ["CB-2", "proved", "refuses"]
    assert [line.strip() for line in lines[1:3]] == ["passed t::a (2 cases)", "passed t::b"]
    assert lines[3].split() == ["CB-3", "-", "buys"]


def test_the_real_tier_is_judged_by_what_is_declared_proved_there():
    here, there = (
        Requirement("CB-2", "refuses", done=True),
        Requirement("CB-3", "buys", done=False, real=True),
    )
    (complaint,) = complaints(of_real_tier([here, there]), {})
    assert complaint.startswith("CB-3 is declared done")
