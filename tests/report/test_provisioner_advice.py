"""Which provisioner fits a pool: each judgement follows from the documents and says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.provision.documents import documents
from tidemill.cli import main
from tidemill.report.provisioner_advice import advise
from tidemill.spec.scenario import Scenario

KARPENTER = {"karpenter": {"version": "1.8.2"}}
GB200 = {"instanceTypes": ["p6e-gb200.36xlarge"]}
MANY = {"instanceFamilies": ["g6"]}
EXAMPLES = Path(__file__).parents[2] / "examples"


def judged(scenario=None, **how):
    (advice,) = advise(documents(**how), scenario)
    return advice, {each.provisioner.value: each for each in advice.judged}


@pytest.mark.requirement("MG-6")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, "native"),
        ({"node_class": {"efa": True}}, "native"),
        ({"requirements": GB200, "platform": KARPENTER}, "native"),
        ({"warm": True}, "asg"),
        ({"node_class": {"launchTemplate": {"id": "lt-0abc"}}}, "asg"),
        ({"sources": [{"type": "odcr"}]}, "managed"),
        ({"sources": [{"type": "on-demand"}], "requirements": MANY, "platform": KARPENTER}, "karpenter"),
        ({"sources": [{"type": "on-demand"}], "requirements": MANY}, "native"),
    ],
    ids=[
        "a block",
        "gangs",
        "UltraServers",
        "warm",
        "a template of their own",
        "steady",
        "many types",
        "no Karpenter",
    ],
)
def test_advises_by_what_the_pool_needs(how, expected):
    advice, _ = judged(**how)
    assert advice.best.provisioner.value == expected
    assert advice.best.fit == "best"
    assert advice.best.why


@pytest.mark.requirement("MG-6")
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({}, "has no Karpenter"),
        (
            {"platform": {"karpenter": {"version": "1.5.0"}}},
            "Karpenter 1.5.0 does not support Capacity Blocks",
        ),
        ({"requirements": GB200, "platform": KARPENTER}, "60 minutes before it"),
        (
            {"node_class": {"launchTemplate": {"id": "lt-0abc"}}, "platform": KARPENTER},
            "cannot use an existing launch template",
        ),
    ],
)
def test_says_why_karpenter_cannot_be_used(how, sentence):
    _, each = judged(**how)
    assert each["karpenter"].fit == "no"
    assert any(sentence in reason for reason in each["karpenter"].why)


@pytest.mark.requirement("MG-6")
def test_says_what_each_provisioner_costs():
    _, each = judged(platform=KARPENTER, node_class={"efa": True})
    assert any("ten minutes less" in reason for reason in each["managed"].costs)
    assert any("ten minutes less" in reason for reason in each["karpenter"].costs)
    assert any("may start in part" in reason for reason in each["karpenter"].costs)
    assert not each["native"].costs


def test_a_gang_counts_where_it_may_run():
    def playing(selector):
        job = {
            "name": "g",
            "arrivals": {"at": ["0s"]},
            "duration": {"fixed": "1h"},
            "nodes": 2,
            "nodeSelector": selector,
        }
        body = {"start": "2026-11-16T00:00:00Z", "duration": "1d", "jobs": [job]}
        return Scenario.model_validate({"metadata": {"name": "s"}, "spec": body})

    here, elsewhere = playing({"tier": "train"}), playing({"tier": "other"})
    told = [judged(scenario, labels={"tier": "train"})[1]["native"].favours for scenario in (here, elsewhere)]
    assert any("gang" in reason for reason in told[0])
    assert not any("gang" in reason for reason in told[1])


@pytest.mark.requirement("MG-6")
def test_the_command_lists_all_four_provisioners_with_reasons(capsys):
    assert main(["advise", str(EXAMPLES / "first-block.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train: native"
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        "native", "asg", "managed", "karpenter",
    ]  # fmt: skip
    assert main(["advise", str(EXAMPLES / "first-block.yaml"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["pools"]
    assert (told["advice"], told["now"]) == ("native", "native")
    assert told["provisioners"][3]["rulesOut"]


def test_an_unknown_pool_is_a_one_line_error(capsys):
    assert main(["advise", str(EXAMPLES / "first-block.yaml"), "--pool", "trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err
