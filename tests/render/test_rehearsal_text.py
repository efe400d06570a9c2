"""The terminal summary: the verdict first, nothing wider than the terminal, the same text without colour."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console

from tests.render import sample
from tidemill.render.rehearsal_text import summary
from tidemill.report.savings import Savings
from tidemill.sim.invariants.truth import Violation
from tidemill.sim.scenario.outcome import KillRow, Outcome, Series, Unserved, Verdict, WarningRow


def shown(outcome: Outcome, width: int = 120, color: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=color, color_system="standard")
    console.print(summary(outcome, width, color))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.requirement("GB-4")
def test_the_verdict_comes_first_in_three_parts(outcome: Outcome) -> None:
    lines = [line.strip() for line in shown(outcome).splitlines()]
    assert lines[0] == "✓ Safe, served and worth it  examples/two-blocks.yaml"
    assert lines[1] == "✓ safe      no invariant was violated in 3,412 ticks"
    assert lines[2].startswith("✓ served    36 of 40 jobs finished")
    assert lines[3:7] == [
        "✓ worth it  paid $18,845 for 4,608 GPU-hours, 3,056 of them used",
        "paid $1,000 more for hours outside the rehearsal",
        "the same work on demand: $22,922; saved $4,077",
        "breaks even at 59 % use; 71 % was reached",
    ]


@pytest.mark.requirement("GB-4")
@pytest.mark.parametrize(
    ("verdict", "headline"),
    [
        (Verdict(served=False, unserved=(Unserved("waiting", ("a", "b")),)), "✗ Safe, but not served"),
        (Verdict(worth_it=False, savings=sample.SAVINGS), "! Safe and served, but not worth it"),
        (Verdict(), "✓ Safe and served"),
    ],
)
def test_only_a_plan_that_works_is_green(outcome: Outcome, verdict: Verdict, headline: str) -> None:
    assert shown(replace(outcome, verdict=verdict)).startswith(f"{headline}  ")


def test_what_was_not_served_is_counted_and_named(outcome: Outcome) -> None:
    rows = (
        Unserved("uncovered", ("november/week-47",)),
        Unserved("waiting", tuple(f"job-{n}" for n in range(6))),
    )
    text = words(replace(outcome, verdict=Verdict(served=False, unserved=rows)))
    assert "1 demand window has too few instances: november/week-47" in text
    assert (
        "6 jobs still wait, although there was time for them: job-0, job-1, job-2, job-3 and 2 more" in text
    )


def test_a_loss_is_called_one(outcome: Outcome) -> None:
    lost = replace(sample.SAVINGS, on_demand_usd=7_259.0, saved_usd=-2_857.0, break_even=1.04, reached=0.46)
    text = words(replace(outcome, verdict=Verdict(worth_it=False, savings=lost)))
    assert "the same work on demand: $7,259; lost $2,857 dearer at any use; 46 % was reached" in text


def test_fees_that_were_drawn_are_shown_with_the_catalogs_rate(outcome: Outcome) -> None:
    assert "drawn" not in words(outcome)
    drawn = replace(sample.BLOCK_A, fee_drawn=True, catalog_fee_usd=10_875)
    told = "fees drawn by the simulator, with the catalog's rate: alpha $9,216 (catalog $10,875)"
    assert told in words(replace(outcome, blocks=(drawn,)))


def test_a_violation_is_shown_with_its_instant_and_objects(outcome: Outcome) -> None:
    violation = Violation(1, sample.hour(8), "5 instances on a block of 4", ("cr-0alpha", "i-1"))
    stopped = Verdict(safe=False, served=None)
    lines = shown(replace(outcome, invariant_violations=(violation,), verdict=stopped)).splitlines()
    assert lines[0].startswith("✗ Not safe: 1 violation of invariant 1")
    assert lines[2].strip() == "– served    not judged: the run stopped at the violation"
    where = "invariant 1 at 16 Nov 14:00:00 UTC: 5 instances on a block of 4 [cr-0alpha, i-1]"
    assert where in [line.strip() for line in lines]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_wider_than_the_terminal(outcome: Outcome, width: int) -> None:
    assert max(len(line) for line in shown(outcome, width).splitlines()) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_has_blocks_jobs_services_cost_and_problems(outcome: Outcome, width: int) -> None:
    text = " ".join(shown(outcome, width).split())
    for words in (
        "alpha 4×p5.48xlarge 16 Nov 11:30",
        "11m 17s $9,216 71 %",
        "used 3,056",
        "66 %",
        "$18,845 blocks $18,432, on-demand $413",
        "idle $6,207 (33 %)",
        "40: 36 finished, 3 held, 1 failed, 1 late; 3 evictions, 2 forced",
        "chat down 0s lowest 5 of 6 ready, needs 4",
        "forced 19 Nov 10:49:12",
        "--seed 7 --html report.html",
    ):
        assert words in text


def test_money_without_gpu_hours_is_not_said_to_be_for_0_of_them(outcome: Outcome) -> None:
    plain = replace(outcome, gpu_hours={"used": 0.0, "paid": 0.0})
    hourly = replace(plain, verdict=Verdict(savings=Savings(paid_usd=12.0)))
    assert "paid $12.00 for nodes without accelerators" in words(hourly)
    ahead = replace(plain, verdict=Verdict(savings=Savings(ahead_usd=900.0)))
    assert "paid $900 for hours outside the rehearsal" in words(ahead)
    assert "0 GPU-hours, 0" not in words(hourly) + words(ahead)


@pytest.mark.requirement("PE-16")
def test_capacity_without_a_price_is_named_and_in_no_comparison(outcome: Outcome) -> None:
    unknown = Savings(paid_usd=18_432.0, unpriced=("train",))
    text = words(replace(outcome, verdict=Verdict(savings=unknown)))
    assert "no on-demand price is known for capacity of train" in text
    assert "the same work on demand" not in text


def test_a_late_drain_says_how_late(outcome: Outcome) -> None:
    late = replace(sample.BLOCK_A, drained_at=sample.BLOCK_A.deadline + timedelta(minutes=3))
    assert "3m late" in shown(replace(outcome, blocks=(late,)))


def test_square_brackets_in_names_are_not_read_as_styles(outcome: Outcome) -> None:
    odd = sample.job("[red]x[/red]", state="failed", reason="[bold]why[/]")
    text = shown(replace(outcome, jobs=(odd,)))
    assert "[red]x[/red]" in text
    assert "[bold]why[/]" in text


def test_colour_adds_escape_codes_and_changes_no_text(outcome: Outcome) -> None:
    plain = shown(outcome)
    assert "\x1b" not in plain
    console = Console(file=io.StringIO(), width=120)
    console.print(summary(outcome, 120, True))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == plain


def test_more_than_ten_problems_are_counted_and_not_listed(outcome: Outcome) -> None:
    jobs = tuple(sample.job(f"j{n}", state="failed", reason=f"reason {n}") for n in range(30))
    text = shown(replace(outcome, jobs=jobs, evictions=()))
    assert "reason 9" in text
    assert "reason 10" not in text
    assert "and 20 more: see --html or --json" in text


def test_many_failed_jobs_do_not_hide_held_jobs(outcome: Outcome) -> None:
    failed = tuple(sample.job(f"j{n}", state="failed", reason=f"reason {n}") for n in range(30))
    held = sample.job("patient", state="held", reason="no block lasts long enough")
    assert "no block lasts long enough" in shown(replace(outcome, jobs=(*failed, held)))


def test_an_empty_rehearsal_has_a_summary(outcome: Outcome) -> None:
    nothing = replace(
        outcome,
        blocks=(),
        nodes=(),
        jobs=(),
        services=(),
        evictions=(),
        series=Series(),
        gpu_hours={},
        cost_usd={},
    )
    assert "no invariant was violated" in shown(nothing)


def words(outcome: Outcome) -> str:
    return " ".join(shown(outcome, 200).split())


def test_a_window_without_a_purchase_is_shown_with_the_reason(outcome: Outcome) -> None:
    text = words(replace(outcome, purchases=(sample.purchase(),)))
    assert "purchases week-48 not bought" in text
    assert (
        "not bought november/week-48: 4×p5.48xlarge for up to $9,500 it waits for approval (0 of 1)" in text
    )


def test_a_window_that_was_bought_with_the_second_proposal_is_no_problem(outcome: Outcome) -> None:
    refused = sample.purchase(state="refused", note="too dear", verdicts=("finance refused: too dear",))
    bought = sample.purchase(state="confirmed", fee_usd=9_216, note="", reservations=("cr-0alpha",))
    text = words(replace(outcome, purchases=(refused, bought)))
    assert "purchases week-48 bought for $9,216" in text
    assert "not bought" not in text
    only_refused = words(replace(outcome, purchases=(refused,)))
    assert "$9,500 finance refused: too dear" in only_refused


def test_of_several_proposals_the_one_people_decided_on_gives_the_reason(outcome: Outcome) -> None:
    over = "up to $9,500 is over the ceiling of $100 for one purchase"
    approved = sample.purchase(state="voided", note=over, verdicts=("finance approved",))
    text = words(replace(outcome, purchases=(approved, sample.purchase(), sample.purchase())))
    assert f"finance approved; {over}; 3 proposals in all" in text


def test_a_warning_is_shown_unless_it_is_about_a_proposal(outcome: Outcome) -> None:
    none = WarningRow(
        "week-49", "EC2 offers no block of 4 p5.48xlarge for it now", outcome.start, outcome.end
    )
    waits = WarningRow("november/week-48", "it waits for approval", outcome.start, outcome.end)
    text = words(replace(outcome, purchases=(sample.purchase(note="x"),), warnings=(none, waits)))
    assert "warning week-49 EC2 offers no block" in text
    assert "warning november/week-48" not in text


def test_a_warning_shows_block_names_and_readable_instants(outcome: Outcome) -> None:
    named = sample.block(id="cr-0a1b2c3d4e5f60718")
    sentence = f"{named.id} must be empty by 2026-11-20T10:50:00Z"
    warned = WarningRow("Deployment/chat", sentence, outcome.start, outcome.end)
    text = words(replace(outcome, blocks=(named,), warnings=(warned,)))
    assert "warning Deployment/chat block alpha must be empty by 20 Nov 10:50 UTC" in text


def test_pods_that_died_without_their_grace_period_are_counted_and_named(outcome: Outcome) -> None:
    kills = (
        KillRow(sample.hour(9), "training/a-0", "ip-1", 300, 0, False),
        KillRow(sample.hour(9), "training/b-0", "ip-1", 300, 300, True),
    )
    text = words(replace(outcome, kills=kills))
    assert "2 forced; 2 pods died with their node, 1 without its grace" in text
    assert "killed 16 Nov 15:00:00 training/a-0 died with ip-1 after 0 s of its 300 s grace" in text
    assert "training/b-0 died" not in text
    assert "1 pod died with its node, 0 without their grace" in words(replace(outcome, kills=kills[1:]))


def test_a_service_that_was_down_is_shown_with_the_reason_its_replicas_wait(outcome: Outcome) -> None:
    down = sample.service(
        downtime_s=7200, down=((sample.hour(2), sample.hour(4)),), waiting=1, reason="every node is taken"
    )
    text = words(replace(outcome, services=(down,)))
    assert "down chat fewer than 4 of 6 ready for 2h from 16 Nov 08:00" in text
    assert "1 replica waits: every node is taken" in text


def test_a_refused_or_unpaid_extension_is_a_problem(outcome: Outcome) -> None:
    lines = (
        (sample.hour(70), "extension-refused", "alpha", "the extension by 1d was refused: too late"),
        (sample.hour(71), "extension-failed", "cr-0alpha", "the extension was not paid in time"),
    )
    text = words(replace(outcome, journal=lines))
    assert "extension 19 Nov 04:00:00 alpha the extension by 1d was refused: too late" in text
    assert "the extension was not paid in time" in text


def test_without_jobs_the_line_says_none(outcome: Outcome) -> None:
    assert "jobs none; 3 evictions, 2 forced" in words(replace(outcome, jobs=()))


def test_the_next_commands_name_every_file(outcome: Outcome) -> None:
    text = shown(replace(outcome, scenario="a.yaml my day.yaml", files=("a.yaml", "my day.yaml")))
    assert "tidemill rehearse a.yaml 'my day.yaml' --seed 7 --json" in text
