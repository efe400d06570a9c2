"""The read models: figures, waiting pods with reasons, and all of it as JSON."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ahead, spec, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.plan import Plan
from tidemill.model.pods import DisruptionBudget, PodPhase
from tidemill.model.purchases import Spending
from tidemill.render.display_names import DisplayNames
from tidemill.render.status_text import status_text
from tidemill.report import Status, next_steps, pods, status
from tidemill.spec.units import parse_duration


def shown(spec_, world_, plan=None, **names):
    return status(spec_, world_, plan or decide(spec_, world_), **names)


def only(rows):
    (row,) = rows
    return row


@pytest.mark.requirement("PE-10")
def test_a_pools_nodes_are_counted_by_phase_including_requested_ones():
    nodes = [given.node(f"i-{phase}", phase) for phase in ("launched", "registering", "ready", "draining")]
    seen = shown(spec(), world(given.block(count=8), nodes, given.launch_intent(count=3)), Plan())
    assert only(seen.pools).nodes == {
        "requested": 3,
        "launched": 1,
        "registering": 1,
        "ready": 1,
        "draining": 1,
    }


def test_a_visible_instance_no_longer_counts_as_requested():
    up = given.node("i-1", "launched", intent_id="ti-1")
    seen = shown(spec(), world(given.block(), up, given.launch_intent(count=2)), Plan())
    assert only(seen.pools).nodes == {"requested": 1, "launched": 1}


def test_wanted_gpus_are_those_of_running_and_waiting_pods():
    up = given.node()
    facts = world(
        given.block(free=0, count=1),
        up,
        given.pod("runs", gpus=4, on=up),
        given.pod("waits", gpus=8),
        given.daemon("agent", up),
    )
    row = only(shown(spec(), facts).pools)
    assert (row.gpus_ready, row.gpus_used, row.gpus_wanted, row.waiting) == (8, 4, 12, 1)


def test_a_waiting_pod_is_in_the_queue_of_its_pool():
    train, small = (
        given.pool("train", labels={"use": "training"}),
        given.hourly_pool("small", labels={"use": "small"}),
    )
    waits = given.pod("eval", gpus=1, selector={"use": "small"})
    rows = {row.name: row for row in shown(spec(train, small), world(waits), Plan()).pools}
    assert (rows["small"].waiting, rows["train"].waiting) == (1, 0)


def test_a_pod_too_large_for_every_pool_is_in_no_queue_but_is_listed():
    seen = shown(spec(), world(given.block(), given.pod("huge", gpus=64)))
    assert only(seen.pools).waiting == 0
    assert "more than any node" in only(seen.waiting).reason


def test_a_block_has_the_times_of_its_drain_deadline_and_end():
    up = given.node()
    seen = shown(spec(), world(given.block(ends_in="10h"), up, given.pod(on=up, grace="20m")))
    row = only(seen.blocks)
    assert (row.deadline, row.kill_at, row.end) == (ahead("9h30m"), ahead("9h30m"), ahead("10h"))
    assert row.drain_from is not None
    assert row.drain_from < ahead("9h10m")
    assert (row.nodes_up, row.pods) == (1, 1)


@pytest.mark.requirement("CB-10")
def test_a_managed_pools_block_shows_the_earlier_deadline():
    managed = given.pool(provisioner="managed")
    before = only(shown(spec(managed), world(given.block(ends_in="10h", pool="p5", free=4)), Plan()).blocks)
    assert before.deadline == ahead("9h20m")
    up = given.node(provisioner="managed")
    assert only(shown(spec(managed), world(given.block(ends_in="10h"), up)).blocks).deadline == ahead("9h20m")


def test_the_block_behind_a_pool_is_the_one_that_ends_first():
    later = Source(SourceKind.BLOCK, "cr-2")
    facts = world(
        given.block(ends_in="30h"),
        given.block("cr-2", ends_in="5h"),
        given.node(),
        given.node("i-2", source=later),
    )
    row = only(shown(spec(), facts).pools)
    assert row.blocks == ("cr-2", "cr-1")
    assert row.ends_at == ahead("5h")


def test_blocks_of_other_deployments_are_not_shown():
    assert shown(spec(), world(given.block(owner="somebody"))).blocks == ()


def test_a_block_is_shown_by_its_name_or_else_by_its_id():
    assert only(shown(spec(), world(given.block()), block_names={"cr-1": "tide-a"}).blocks).name == "tide-a"
    assert only(shown(spec(), world(given.block(tags=(("Name", "november"),)))).blocks).name == "november"
    assert only(shown(spec(), world(given.block())).blocks).name == "cr-1"


@pytest.mark.requirement("PE-13")
def test_a_waiting_pod_has_the_plans_reason_and_earliest_instant():
    facts = world(
        given.block(ends_in="50m", free=4),
        given.block("cr-2", starts_in="2h", ends_in="26h"),
        given.pod(gpus=8, expected="5h"),
    )
    row = only(shown(spec(), facts).waiting)
    assert "cr-2 starts" in row.reason
    assert row.earliest is not None
    assert row.earliest >= ahead("2h")


def test_a_pod_says_where_it_runs_and_until_when():
    up = given.node()
    runs = given.pod("runs", gpus=8, on=up, ends_at=ahead("3h"))
    row = only(pods(spec(), world(given.block(), up, runs), Plan()))
    assert (row.state, row.node, row.source, row.until) == ("running", "node-i-1", "cr-1", ahead("3h"))


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"deleting_until": ahead("1m")}, "stopping"),
        ({"phase": PodPhase.PENDING, "started_at": None}, "starting"),
    ],
)
def test_a_bound_pod_that_does_not_run_is_starting(fields, state):
    up = given.node()
    assert only(pods(spec(), world(given.block(), up, given.pod(on=up, **fields)), Plan())).state == state


def test_a_pod_with_a_foreign_scheduling_gate_says_so():
    row = only(pods(spec(), world(given.block(), given.pod(held_by_others=True)), Plan()))
    assert row.reason == "another controller holds it"


@pytest.mark.requirement("PE-16")
def test_delivered_and_used_hours_of_a_block_have_on_demand_prices():
    facts = world(
        given.block(count=4),
        given.block("cr-2", starts_in="3h"),
        given.block("cr-3", kind="odcr", ends_in=None),
    )
    seen = status(spec(), facts, Plan(), used_gpu_hours={"cr-1": 16.0})
    rows = {row.id: row for row in seen.blocks}
    assert rows["cr-1"].delivered_on_demand_usd == pytest.approx(4 * 55.04)  # since an hour ago
    assert rows["cr-1"].used_on_demand_usd == pytest.approx(2 * 55.04)
    assert rows["cr-2"].delivered_on_demand_usd == 0
    assert rows["cr-3"].delivered_on_demand_usd is None  # it costs that anyway
    assert (seen.money.delivered_on_demand_usd, seen.money.used_on_demand_usd) == (220.16, 110.08)


@pytest.mark.requirement("PE-16")
def test_unknown_used_hours_have_no_price():
    seen = shown(spec(), world(given.block()), Plan())
    assert seen.money.delivered_on_demand_usd > 0
    assert seen.money.used_on_demand_usd is None


@pytest.mark.requirement("PE-16")
def test_a_type_without_a_price_on_demand_is_named():
    p5e = spec(given.pool("p5e", requirements={"instanceTypes": ["p5e.48xlarge"]}))
    money = shown(p5e, world(given.block(instance_type="p5e.48xlarge")), Plan()).money
    assert (money.delivered_on_demand_usd, money.unpriced) == (0.0, ("p5e.48xlarge",))


def test_money_has_the_month_of_the_ledger_and_the_current_rate():
    small = given.hourly_pool("g6", "g6.xlarge")
    facts = world(
        given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge"),
        Spending(1200, ((("g6", SourceKind.ON_DEMAND), 34.5),)),
    )
    seen = shown(spec(small, budget={"monthlyUsd": 5000}), facts)
    assert (seen.money.fees_usd, seen.money.hourly_usd, seen.money.budget_usd) == (1200, 34.5, 5000)
    assert seen.money.usd_per_hour == only(seen.pools).usd_per_hour > 0
    assert only(seen.pools).month_usd == 34.5


def test_next_steps_name_what_each_action_touches():
    facts = world(given.block(free=2), given.gang("g", 2), given.node("i-1"), given.node("i-2"))
    steps = next_steps(spec(), facts, decide(spec(), facts))
    admitted = only([step for step in steps.steps if step.action == "Admit"])
    assert admitted.about == ("ml/g-0", "ml/g-1")
    launched = only([step for step in steps.steps if step.action == "Launch"])
    assert launched.about == ("2 x p5.48xlarge on cr-1",)


def test_the_json_can_be_read_back():
    up = given.node()
    seen = shown(
        spec(),
        world(given.block(), up, given.pod("runs", gpus=8, on=up), given.gang("g", 2), given.launch_intent()),
    )
    written = json.dumps(seen.as_json())
    assert '"at": "2026-11-16T12:00:00Z"' in written
    assert TypeAdapter(Status).validate_json(written) == seen


# --- when and why a drain starts ----------------------------------------------------------------------


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(
    ("pods_there", "settings", "lead", "for_whom"),
    [
        ([], {}, "10m", ()),
        ([{"grace": "1m"}], {}, "10m", ()),
        ([{"grace": "30m"}, {"grace": "1m"}], {}, "33m30s", ("ml/p0 (30m grace)",)),
        (
            [{"grace": "30m", "checkpoint_every": "1h", "checkpoint_time": "5m"}],
            {},
            "38m30s",
            ("ml/p0 (30m grace, 5m checkpoint)",),
        ),
        (
            [{"grace": "30m", "checkpoint_every": "1h", "checkpoint_time": "5m"}],
            {"checkpoint": False},
            "33m30s",
            ("ml/p0 (30m grace)",),
        ),
        ([{"grace": "30m"}], {"lead": "50m"}, "50m", ("pool p5 asks for 50m",)),
        (
            [{"grace": "30m"}] * 5,
            {},
            "33m30s",
            ("ml/p0 (30m grace)", "ml/p1 (30m grace)", "ml/p2 (30m grace)", "and 2 more"),
        ),
    ],
)
def test_a_block_shows_when_it_drains_and_for_which_pods(pods_there, settings, lead, for_whom):
    here = given.node()
    there = world(
        given.block(ends_in="48h"),
        here,
        [given.pod(f"p{place}", on=here, **fields) for place, fields in enumerate(pods_there)],
    )
    row = only(shown(spec(given.pool(drain=settings)), there).blocks)
    assert row.drain_lead_for == for_whom
    assert row.drain_lead_s == parse_duration(lead).total_seconds()
    assert row.drain_from == ahead("47h30m") - parse_duration(lead)


@pytest.mark.requirement("CB-10")
def test_a_service_that_moves_in_waves_is_named_as_the_cause_of_a_long_lead():
    here = given.node()
    replicas = [given.replica(f"chat-{place}", on=here, grace="1m", load="7m") for place in range(4)]
    budget = DisruptionBudget("Deployment/chat", min_available=3, allowed=1)
    row = only(shown(spec(), world(given.block(ends_in="48h"), here, replicas, budget)).blocks)
    assert row.drain_lead_s == 38 * 60
    assert row.drain_lead_for == ("Deployment/chat (4 replicas, 1 at a time)",)


def test_the_status_text_names_the_causes_of_a_long_lead_only():
    here = given.node()
    facts = world(given.block(ends_in="48h"), here, given.pod("slow", on=here, grace="30m"))
    text = drawn(shown(spec(), facts))
    assert (
        "cr-1 drains from 18 Nov 10:56:30 UTC, 33m 30s before its deadline, for ml/slow (30m grace)" in text
    )
    assert "drains from" not in drawn(shown(spec(), world(given.block(ends_in="48h"), here)))


def drawn(seen: Status) -> str:
    out = StringIO()
    console = Console(width=140, file=out, force_terminal=False)
    console.print(status_text(seen, DisplayNames({})))
    return out.getvalue()
