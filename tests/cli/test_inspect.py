"""`tidemill inspect` on a simulated account in a file."""

from __future__ import annotations

import pytest

from tests.cli.office import P5, Office

WISH = (P5, "--count", "2", "--duration", "2d", "--from", "2026-11-18", "--to", "2026-11-22")


@pytest.mark.requirement("PE-22")
def test_a_file_is_looked_at_with_and_without_documents_and_stays_as_it_was(office: Office):
    office.open(mode="auto", approval={"autoMaxFeeUsd": 40_000})
    bought = office("buy", office.offer(*WISH)["id"], "--yes")
    assert bought.code == 0, bought.err
    office.wait("10m")  # EC2 lists a purchase late
    before = office.sim.read_bytes()
    told = office("inspect", "--json")
    assert told.code == 0, told.err
    assert "SIMULATED AWS in" in told.err
    (block,) = told.json["blocks"]
    assert (block["held"], block["type"]) == ("ours", P5)
    assert [one["would"] for one in told.json["claims"]] == ["own"]
    assert (block["state"], told.json["traps"]) == ("scheduled", [])
    assert office.sim.read_bytes() == before


def test_an_account_without_anything_says_so(office: Office):
    office.open()
    told = office("inspect")
    assert told.code == 0
    assert "AWS shows no block and no reservation." in told.out
    assert "No trap found." in told.out
