"""The interface layout of each type, against what EC2 itself says of its network cards."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from importlib import resources

import pytest

from tidemill.catalog import load
from tidemill.provision.efa import in_subnet, layout, network_interfaces, separate_layout

TYPES = load().types
WITH_EFA = sorted(name for name, kind in TYPES.items() if kind.efa)


@pytest.fixture(scope="module")
def cards():
    """By type: each card's index, the interfaces it takes and how many (DescribeInstanceTypes as moto ships it)."""
    packed = resources.files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    known = json.loads(gzip.decompress(packed))
    return {
        name: {
            card["NetworkCardIndex"]: (set(card["InterfaceTypes"]), card["MaximumNetworkInterfaces"])
            for card in known[name]["NetworkInfo"]["NetworkCards"]
        }
        for name in WITH_EFA
        if name in known
    }


@pytest.mark.requirement("SM-1")
@pytest.mark.parametrize("arranged", [layout, separate_layout])
@pytest.mark.parametrize("name", [name for name in WITH_EFA if not name.startswith("p6e-")])
def test_every_interface_is_one_its_card_takes(cards, name, arranged):
    made = arranged(TYPES[name])
    for one in made:
        kinds, most = cards[name][one.card]
        assert one.kind in kinds
        assert one.device < most
    assert len({(one.card, one.device) for one in made}) == len(made)
    assert sum(one.kind != "interface" for one in made) == TYPES[name].efa
    assert max(Counter(one.card for one in made if one.kind != "interface").values()) == 1
    assert {one.card for one in made} == set(cards[name])


def test_where_card_0_speaks_ip_alone_it_is_no_efa():
    b300 = layout(TYPES["p6-b300.48xlarge"])
    assert (b300[0].card, b300[0].kind) == (0, "interface")
    assert [one.card for one in b300[1:]] == list(range(1, 17))


@pytest.mark.requirement("CB-15")
def test_an_ultraservers_efas_are_on_the_odd_cards():
    gb200 = layout(TYPES["p6e-gb200.36xlarge"])
    assert [(one.card, one.kind) for one in gb200] == [
        (0, "interface"), (1, "efa-only"), (3, "efa-only"), (5, "efa-only"), (7, "efa-only"),
    ]  # fmt: skip


def test_karpenters_layout_has_ip_and_efa_apart():
    p5 = separate_layout(TYPES["p5.48xlarge"])
    assert {one.kind for one in p5} == {"interface", "efa-only"}
    assert [(one.card, one.device) for one in p5[:3]] == [(0, 0), (0, 1), (1, 0)]
    assert len(p5) == 33


def test_a_subnet_is_named_where_ec2_wants_it():
    assert in_subnet({}, "subnet-1") == {"SubnetId": "subnet-1"}
    data = {"NetworkInterfaces": network_interfaces(TYPES["p4d.24xlarge"], ["sg-1"])}
    told = in_subnet(data, "subnet-1")
    assert set(told) == {"NetworkInterfaces"}
    assert [one["SubnetId"] for one in told["NetworkInterfaces"]] == ["subnet-1"] * 4
    assert "SubnetId" not in data["NetworkInterfaces"][0]
