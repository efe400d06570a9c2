"""`tidemill catalog`: a table for people, JSON for programs, the nearest name for a typing error."""

from __future__ import annotations

import json

from tidemill.catalog import load
from tidemill.cli import main


def test_lists_every_type_with_the_date_of_its_prices(capsys):
    assert main(["catalog"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in load().types)
    assert all(price_list.as_of in shown for price_list in load().price_lists)


def test_a_pipe_cuts_no_column(capsys):
    main(["catalog", "--type", "p6-b300.48xlarge"])
    row = next(line for line in capsys.readouterr().out.splitlines() if "p6-b300" in line)
    assert "112.320" in row
    assert "142.416" in row
    assert "180 CPU / 3404 GiB" in row


def test_a_family_is_that_family_alone(capsys):
    assert main(["catalog", "--family", "p5", "--json"]) == 0
    types = json.loads(capsys.readouterr().out)["types"]
    assert [t["name"] for t in types] == ["p5.4xlarge", "p5.48xlarge"]


def test_json_carries_sizes_prices_and_dates(capsys):
    assert main(["catalog", "--type", "p5.48xlarge", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (p5,) = document["types"]
    assert document["prices_as_of"] == load().prices_as_of
    assert p5["block_usd_h"] == 37.76
    assert p5["allocatable"]["nvidia.com/gpu"] == 8
    assert p5["whole_node_request"] == {"cpu": 180_000, "memory": 1700 * 2**30, "nvidia.com/gpu": 8}


def test_an_unknown_family_is_answered_with_the_nearest(capsys):
    assert main(["catalog", "--family", "g66"]) == 2
    assert capsys.readouterr().err == "error: unknown family 'g66'; did you mean 'g6'?\n"


def test_an_unknown_type_is_answered_with_the_nearest(capsys):
    assert main(["catalog", "--type", "p5.48xlrage"]) == 2
    assert "did you mean 'p5.48xlarge'?" in capsys.readouterr().err


def test_a_type_outside_the_family_gives_nothing_to_show(capsys):
    assert main(["catalog", "--family", "g6", "--type", "p5.48xlarge"]) == 2
    assert "p5.48xlarge is not of family g6" in capsys.readouterr().err
