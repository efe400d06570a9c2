"""`tidemill catalog`: a table for people, JSON for programs, the nearest name for a typing error."""

from __future__ import annotations

import json

import pytest

from tidemill.catalog import load
from tidemill.cli import main


def test_lists_every_type_with_the_date_of_its_prices(capsys):
    assert main(["catalog"]) == 0
    shown = capsys.readouterr().out
    assert all((name in shown) == (kind.accelerator is not None) for name, kind in load().types.items())
    assert all(price_list.as_of in shown for price_list in load().price_lists)


def test_a_pipe_gets_full_columns(capsys):
    main(["catalog", "--type", "p6-b300.48xlarge"])
    row = next(line for line in capsys.readouterr().out.splitlines() if "p6-b300" in line)
    assert "112.320" in row
    assert "142.416" in row
    assert "180 CPU / 3404 GiB" in row


def test_family_shows_only_that_family(capsys):
    assert main(["catalog", "--family", "p5", "--json"]) == 0
    types = json.loads(capsys.readouterr().out)["types"]
    assert [t["name"] for t in types] == ["p5.4xlarge", "p5.48xlarge"]


def test_json_has_sizes_prices_and_dates(capsys):
    assert main(["catalog", "--type", "p5.48xlarge", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (p5,) = document["types"]
    assert document["prices_as_of"] == load().prices_as_of
    assert p5["block_usd_h"] == 37.76
    assert p5["allocatable"]["nvidia.com/gpu"] == 8
    assert p5["whole_node_request"] == {"cpu": 180_000, "memory": 1700 * 2**30, "nvidia.com/gpu": 8}


def test_an_unknown_family_gives_the_nearest_name(capsys):
    assert main(["catalog", "--family", "g66"]) == 2
    assert capsys.readouterr().err == "error: unknown family 'g66'; did you mean 'g6'?\n"


def test_an_unknown_type_gives_the_nearest_name(capsys):
    assert main(["catalog", "--type", "p5.48xlrage"]) == 2
    assert "did you mean 'p5.48xlarge'?" in capsys.readouterr().err


def test_a_type_outside_the_family_exits_2(capsys):
    assert main(["catalog", "--family", "g6", "--type", "p5.48xlarge"]) == 2
    assert (
        "no type is all of that; leave one of --type, --family and --category out" in capsys.readouterr().err
    )


def test_types_without_accelerators_are_listed_where_they_are_named(capsys):
    assert main(["catalog", "--category", "m"]) == 0
    shown = capsys.readouterr().out
    assert "m7i.large" in shown
    assert "c7i.large" not in shown
    assert main(["catalog", "--fits", "cpu=6,memory=20Gi"]) == 0
    shown = capsys.readouterr().out
    assert "dearer types; narrow with --category or --family" in shown
    assert main(["catalog", "--category", "mm"]) == 2
    assert "did you mean 'm'" in capsys.readouterr().err


# --- --fits -------------------------------------------------------------------------------------------


def fits(capsys, *arguments, code=0):
    assert main(["catalog", "--fits", *arguments]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@pytest.mark.requirement("PE-16")
def test_fits_suggests_the_cheapest_type(capsys):
    shown = fits(capsys, "gpu=1,cpu=4,memory=24Gi")
    marked = [line for line in shown.splitlines() if line.startswith("→")]
    assert marked[0].split()[1:7] == ["g6.2xlarge", "1", "x", "L4", "0.978", "1"]
    assert marked[1] == "→ g6.2xlarge: the cheapest on-demand type that holds one, $0.978 per hour."
    assert "on-demand prices of 2026-07-20" in shown


@pytest.mark.requirement("PE-16")
def test_fits_names_the_cheaper_type_for_many_pods(capsys):
    shown = fits(capsys, "gpu=1,cpu=2,memory=70Gi")
    assert "For 4 such pods g6.24xlarge is cheaper: $1.669 per pod and hour on a full node." in shown


@pytest.mark.requirement("PE-16")
def test_fits_as_json_has_pods_price_and_unused_gpus(capsys):
    seen = json.loads(fits(capsys, "gpu=3,cpu=60", "--family", "g6", "--json"))
    assert seen["suggestion"] == "g6.24xlarge"
    assert seen["request"] == {"cpu": 60_000, "nvidia.com/gpu": 3}
    first, second = seen["fits"]
    assert (first["type"], first["pods"], first["gpus_stranded"], first["suggested"]) == (
        "g6.24xlarge", 1, 1, True,
    )  # fmt: skip
    assert (second["type"], second["pods"], second["gpus_stranded"]) == ("g6.48xlarge", 2, 2)
    assert second["usd_h_per_pod"] == pytest.approx(second["on_demand_usd_h"] / 2)


def test_fits_accepts_kubernetes_resource_names(capsys):
    short, long = "neuron=16,efa=8", "aws.amazon.com/neuron=16, vpc.amazonaws.com/efa=8"
    assert fits(capsys, short, "--json") == fits(capsys, long, "--json")


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("gpu=1,memory=9Ti", "it requests 9Ti memory, and no type has more than 3786Gi for pods."),
        ("gpu=1,neuron=1", "for each resource some type has enough, but no type has enough of all."),
    ],
)
def test_fits_names_the_request_that_is_too_large(capsys, written, says):
    assert says in fits(capsys, written)
    seen = json.loads(fits(capsys, written, "--json"))
    assert (seen["fits"], seen["suggestion"]) == ([], None)
    assert says.rstrip(".") in seen["reason"]


def test_fits_suggests_nothing_without_a_known_price(capsys):
    shown = fits(capsys, "gpu=4", "--family", "p6e-gb200")
    assert "No on-demand price is known for these types" in shown
    assert "→" not in shown


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", 'write it like "gpu=1,cpu=4,memory=24Gi"'),
        ("gpu", "'gpu' is not RESOURCE=AMOUNT; write it like"),
        ("gpus=1", "unknown resource 'gpus'; did you mean 'gpu'? write it like"),
        ("gpu=1.5", "gpu: '1.5' is not a whole number of devices; write 'gpu=1'"),
        ("memory=24GB", "memory: '24GB' is not a memory quantity; write '1700Gi'"),
        ("cpu=lots", "cpu: 'lots' is not a CPU quantity; write '180'"),
        ("gpu=1,nvidia.com/gpu=1", "'nvidia.com/gpu' is there twice"),
        ("gpu=0", "the pod requests nothing"),
    ],
)
def test_wrong_requests_exit_2_and_show_how_to_write_them(capsys, written, says):
    assert says in fits(capsys, written, code=2)
