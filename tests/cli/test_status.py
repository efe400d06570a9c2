"""`status`, `plan` and `why`: one instant of a scenario, for people and for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tidemill.cli import main
from tidemill.cli.loading import demo_path, load_scenario
from tidemill.cli.playback import Pace, Playback
from tidemill.cli.snapshot_file import SnapshotFile, read_snapshot, snapshot_path
from tidemill.sim.scenario.rehearsal import Rehearsal

DRAIN = ("demo", "--at", "12h24m")


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def asked(capsys):
    def ask(*arguments, code=0):
        assert main([*arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return ask


@pytest.fixture
def running_up():
    """An `up` in this process that has just written its file."""
    spec, scenario = load_scenario(["demo"])
    rehearsal = Rehearsal(spec, scenario, 1)
    playback = Playback(rehearsal, "demo", Pace(rehearsal.end, wall_s=10, speed=3600))
    playback.advance(passed_s=1, elapsed_s=0, within_s=10)
    with SnapshotFile(playback) as current:
        current.write()
        yield rehearsal


# --- status -------------------------------------------------------------------------------------------


def test_status_shows_pools_blocks_nodes_purchases_and_money(asked):
    out = asked("status", *DRAIN)
    for words in (
        "SIMULATED",
        "tide-a",
        "DRAINING 1 pod",
        "finance refused",
        "finetune-1-0-0",
        "of $30,000 this month",
    ):
        assert words in out


def test_status_as_json_has_the_same_rows(asked):
    seen = json.loads(asked("status", *DRAIN, "--json"))
    assert seen["simulated"] is True
    assert {pool["name"]: pool["nodes"] for pool in seen["pools"]} == {
        "small": {"ready": 2},
        "train": {"draining": 1},
    }
    assert [(row["name"], row["state"]) for row in seen["blocks"]] == [
        ("tide-a", "active"),
        ("tuesday", "scheduled"),
    ]
    assert [row["state"] for row in seen["purchases"]] == ["refused", "confirmed"]


@pytest.mark.requirement("PE-16")
def test_status_compares_block_hours_with_on_demand(asked):
    shown = asked("status", *DRAIN)
    assert "for hours that are over" in shown
    assert "the same work on demand: $" in shown
    earlier, later = (
        json.loads(asked("status", "demo", "--at", at, "--json"))["money"] for at in ("4h", "4h30m")
    )
    # Nothing happens in between: both grow by what stands and what is used.
    assert later["delivered_on_demand_usd"] - earlier["delivered_on_demand_usd"] == pytest.approx(
        55.04, abs=0.02
    )
    assert later["used_on_demand_usd"] - earlier["used_on_demand_usd"] == pytest.approx(55.04, abs=0.02)


def test_at_accepts_an_instant(asked):
    written = asked("status", "demo", "--at", "2026-11-17T10:54:00Z", "--json")
    assert json.loads(written) == json.loads(asked("status", *DRAIN, "--json"))


# --- plan ---------------------------------------------------------------------------------------------


def test_plan_at_the_start_shows_the_first_actions(asked):
    steps = json.loads(asked("plan", "demo", "--json"))["steps"]
    assert [step["action"] for step in steps] == ["SearchOffers", "Launch"]
    assert all(step["reason"] for step in steps)


def test_plan_without_actions_says_when_it_looks_again(asked):
    out = asked("plan", "demo", "--at", "4h")
    assert "Nothing to do now." in out
    assert "Next tick   17 Nov 04:55:00 UTC" in out


def test_status_shows_the_last_known_facts_while_aws_fails(asked, tmp_path):
    day = demo_path().read_text(encoding="utf-8")
    throttled = "  faults:\n    - {at: 3h, fault: throttle, duration: 30m}\n"
    (tmp_path / "day.yaml").write_text(day.replace("  faults:\n", throttled), encoding="utf-8")
    out = asked("status", str(tmp_path / "day.yaml"), "--at", "3h10m")
    assert "tide-a" in out


@pytest.mark.requirement("MG-1")
@pytest.mark.parametrize(
    ("provisioner", "about"),
    [("native", []), ("asg", ["group"] * 2 + ["schedule"] * 3), ("managed", ["node"] * 2),
     ("karpenter", ["EC2NodeClass", "NodePool", "NodePool"])],
)  # fmt: skip
def test_plan_lists_missing_objects_of_the_provisioner(asked, tmp_path, provisioner, about):
    """One line of the pool decides."""
    example = Path(__file__).parents[2] / "examples" / "two-blocks.yaml"
    written = example.read_text().replace(
        "  nodeClassName: gpu\n", f"  nodeClassName: gpu\n  provisioner: {provisioner}\n"
    )
    scenario = tmp_path / "two-blocks.yaml"
    scenario.write_text(written)
    changes = json.loads(asked("plan", str(scenario), "--json"))["changes"]
    assert sorted(one["about"].split()[0] for one in changes) == sorted(about)
    assert all(one["verb"] == "create" for one in changes)
    if changes:
        assert changes[0]["about"] in asked("plan", str(scenario))


def test_plan_changes_nothing(running_up):
    def truth():
        return running_up.ticks, len(running_up.done), running_up.ledger.purchases(), running_up.cloud.changes

    before = truth()
    assert read_snapshot() is not None
    assert truth() == before


# --- why ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-13")
@pytest.mark.parametrize(
    "pod", ["foundation/pretrain-1-0-0", "pretrain-1-0-0", "pretrain-1-0", "foundation/pretrain-1-0"]
)
def test_why_says_why_a_pod_waits(asked, pod):
    out = asked("why", pod, *DRAIN)
    assert out.startswith(
        "foundation/pretrain-1-0-0 waits: it needs 1h11m and nothing in pool train lasts that long"
    )
    assert "It could run from 17 Nov 11:37 UTC" in out.splitlines()[0]


def test_why_says_where_a_pod_runs_and_until_when(asked):
    out = asked("why", "finetune-1", "demo", "--at", "5h")
    assert "research/finetune-1-0-0 runs on node i-" in out
    assert "until 17 Nov 11:00 UTC" in out


@pytest.mark.parametrize("name", ["pretrain-1", "pretrain", "foundation/pretrain-1", "Job/pretrain-1"])
def test_why_with_a_job_name_explains_its_first_pending_pod(asked, name):
    first, _, more = asked("why", name, *DRAIN).splitlines()
    assert first.startswith("foundation/pretrain-1-0-0 waits: ")
    assert more == f"3 more pods of {name} wait too."


def test_why_with_a_service_name_says_where_it_runs(asked):
    assert asked("why", "chat", *DRAIN).startswith("serving/chat-0 runs on node ")


def test_why_as_json(asked):
    seen = json.loads(asked("why", "chat-0", *DRAIN, "--json"))
    assert (seen["pod"]["name"], seen["pod"]["state"]) == ("serving/chat-0", "running")


@pytest.mark.requirement("PE-16")
@pytest.mark.parametrize(
    ("pod", "line"),
    [
        (
            "pretrain-1",
            "The cheapest type of its pools that holds it is p5.48xlarge, $55.04 an hour on demand.",
        ),
        ("finetune", "Its node is prepaid; on demand a p5.48xlarge would be $55.04 an hour."),
        (
            "chat",
            (
                "It runs alone on g6e.2xlarge, $2.24 an hour, the cheapest type of its pools that holds it. "
                "Outside its pools g6.2xlarge (1 x L4) at $0.98 would hold it."
            ),
        ),
    ],
)
def test_why_prints_the_price_and_the_cheapest_type(asked, pod, line):
    assert asked("why", pod, *DRAIN).splitlines()[1] == line


@pytest.mark.requirement("PE-16")
def test_why_as_json_has_prices_also_from_a_running_up(asked, running_up):
    price = json.loads(asked("why", "chat-0", "--json"))["pod"]["price"]
    assert price["in_pools"] == {"type": "g6e.2xlarge", "accelerators": "1 x L40S", "usd_per_hour": 2.24208}
    assert price["in_catalog"]["type"] == "g6.2xlarge"


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ("fintune-1-0-0", "there is no pod 'fintune-1-0-0' now; did you mean research/finetune-1-0-0"),
        ("foundation/", "'foundation/' matches several pods; name one of: foundation/pretrain-1-0-0, "),
        ("zzz", "there are: "),
    ],
)
def test_an_unknown_pod_gives_the_nearest_names(asked, pod, says):
    assert says in asked("why", pod, *DRAIN, code=2)


# --- which instant ------------------------------------------------------------------------------------


def test_without_files_status_reads_a_running_up(asked, running_up):
    seen = json.loads(asked("status", "--json"))
    assert seen["at"] == "2026-11-16T23:30:00Z"
    assert "runs on node" in asked("why", "finetune")
    assert "Next tick" in asked("plan")


def test_the_snapshot_of_an_ended_up_is_ignored(asked, running_up):
    content = snapshot_path().read_text().replace(f'"pid":{os.getpid()}', '"pid":999999999')
    snapshot_path().write_text(content)
    assert "start `tidemill up`" in asked("status", code=2)


def test_a_snapshot_of_another_version_is_ignored(asked):
    snapshot_path().parent.mkdir(parents=True)
    snapshot_path().write_text('{"pid": 1}')
    assert "start `tidemill up`" in asked("plan", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status"], "start `tidemill up` in another terminal, or name a scenario"),
        (["status", "--at", "3h"], "--at needs a scenario"),
        (["plan", "demo", "--at", "soon"], "'soon' is not a duration"),
        (["plan", "demo", "--at", "99h"], "outside the scenario, which lasts 1d1h"),
        (["why", "x", "none.yaml"], "the file does not exist"),
    ],
)
def test_wrong_input_exits_2_with_a_message(asked, arguments, says):
    assert says in asked(*arguments, code=2)
