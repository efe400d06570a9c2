"""The page: complete, self-contained, escaped, reproducible, and it counts what it leaves out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from tests.render import sample
from tidemill.render.rehearsal_page import page
from tidemill.sim.cluster.kubelet import Eviction
from tidemill.sim.invariants.truth import Violation
from tidemill.sim.scenario.outcome import KillRow, Outcome, Series, Verdict, WarningRow

_VOID = {"meta", "br", "input", "link", "img", "hr"}
HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><!--"


class Reader(HTMLParser):
    """Checks that tags balance, and keeps what a reader or a browser would take from the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.scripts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag == "script":
            self._script = dict(attrs).get("id") or "code"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def read(outcome: Outcome) -> Reader:
    return Reader(page(outcome))


def test_the_page_is_well_formed_and_its_ids_are_unique(outcome: Outcome) -> None:
    reader = read(outcome)
    assert len(reader.ids) == len(set(reader.ids))


def test_every_block_job_service_and_forced_eviction_is_on_the_page(outcome: Outcome) -> None:
    text = read(outcome).text
    for name in (
        *(block.name for block in outcome.blocks),
        *(job.name for job in outcome.jobs),
        *(service.name for service in outcome.services),
        *(row.pod for row in outcome.evictions if row.forced),
        *(row.reason for row in outcome.evictions if row.forced),
        *(job.reason for job in outcome.jobs),
    ):
        assert name in text


def test_problems_come_before_the_charts(outcome: Outcome) -> None:
    text = page(outcome)
    held = next(job for job in outcome.jobs if job.state == "held")
    assert text.index(outcome.evictions[1].reason) < text.index('id="timeline"')
    assert text.index(held.reason) < text.index('id="timeline"')


def test_the_page_has_the_command_that_repeats_the_run(outcome: Outcome) -> None:
    text = read(outcome).text
    assert "tidemill rehearse examples/two-blocks.yaml --seed 7" in text
    assert "3f9c2e1" in text
    assert "2026-11-01" in text


def test_a_scenario_path_with_spaces_is_quoted_for_the_shell(outcome: Outcome) -> None:
    text = read(replace(outcome, scenario="my runs/a;b.yaml")).text
    assert "tidemill rehearse 'my runs/a;b.yaml' --seed 7" in text


def test_the_same_outcome_gives_the_same_bytes_however_long_the_run_took(outcome: Outcome) -> None:
    assert page(outcome) == page(sample.outcome(wall_s=99.0))


def test_the_page_loads_nothing_from_anywhere(outcome: Outcome) -> None:
    text = page(outcome)
    assert not re.search(r"https?://|@import|url\(", text)
    reader = Reader(text)
    loading = {"src", "href", "action", "srcset", "poster", "background"}
    assert [entry for entry in reader.attributes if entry[1] in loading] == []
    policy = next(
        value for tag, name, value in reader.attributes if name == "content" and "default-src" in value
    )
    assert policy.startswith("default-src 'none'")


def test_no_name_can_become_markup_or_script(outcome: Outcome) -> None:
    hostile = replace(
        outcome,
        scenario=HOSTILE,
        commit=HOSTILE,
        blocks=tuple(replace(block, name=HOSTILE, pool=HOSTILE) for block in outcome.blocks),
        nodes=tuple(replace(node, id=HOSTILE) for node in outcome.nodes),
        jobs=tuple(
            replace(job, name=HOSTILE, stream=HOSTILE, team=HOSTILE, reason=HOSTILE) for job in outcome.jobs
        ),
        services=tuple(replace(service, name=HOSTILE) for service in outcome.services),
        evictions=tuple(Eviction(row.at, HOSTILE, HOSTILE, True, 30, HOSTILE) for row in outcome.evictions),
        invariant_violations=(Violation(4, outcome.end, HOSTILE, (HOSTILE,)),),
        journal=tuple((at, HOSTILE, HOSTILE, HOSTILE) for at, _, _, _ in outcome.journal),
        kills=(KillRow(outcome.end, HOSTILE, HOSTILE, 30, 0, False),),
        purchases=(sample.purchase(HOSTILE, plan=HOSTILE, note=HOSTILE, verdicts=(HOSTILE,)),),
        warnings=(WarningRow(HOSTILE, HOSTILE, outcome.start, outcome.end),),
    )
    text = page(hostile)
    reader = Reader(text)
    assert not any(tag == "img" or name.startswith("on") for tag, name, _ in reader.attributes)
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert json.loads(reader.scripts["data"])["jobs"]["rows"][0][0] == HOSTILE


def test_the_page_shows_how_long_before_the_deadline_each_block_was_drained(outcome: Outcome) -> None:
    text = read(outcome).text
    assert "drained 11m 17s before the deadline" in text
    assert "2 of 2 that ended" in text


def test_the_page_says_that_a_block_was_drained_late(outcome: Outcome) -> None:
    late = replace(sample.BLOCK_A, drained_at=sample.BLOCK_A.deadline + timedelta(minutes=2))
    text = read(replace(outcome, blocks=(late, sample.BLOCK_B))).text
    assert "drained 2m after the deadline" in text
    assert "1 of 2 that ended" in text


def test_a_violation_comes_first_with_its_instant_and_objects(outcome: Outcome) -> None:
    violation = Violation(4, sample.hour(77), "a pod runs at the deadline", ("pod/train-7", "node/ip-1"))
    stopped = Verdict(safe=False, served=None)
    text = read(replace(outcome, invariant_violations=(violation,), verdict=stopped)).text
    assert "no invariant was violated" not in text
    banner = text[: text.index("GPU-hours used")]
    for word in ("1 violation of invariant 4", "19 Nov 11:00:00", violation.sentence, *violation.objects):
        assert word in banner


@pytest.mark.requirement("PE-10")
def test_every_phase_of_a_node_is_drawn_where_it_happened(outcome: Outcome) -> None:
    text = page(outcome)
    node = outcome.nodes[0]
    begins = {phase: int((at - outcome.start).total_seconds()) for phase, at in node.phases}
    for phase in ("requested", "launched", "joined", "registering", "verifying", "ready", "draining"):
        assert f'<rect class="p-{phase}" x="{begins[phase]}"' in text


def test_5000_jobs_are_all_searchable_but_not_all_listed_and_the_page_stays_small(outcome: Outcome) -> None:
    jobs = tuple(
        sample.job(
            f"job-{n:05}", reason=f"held: needs {n} minutes more than any block has left", state="held"
        )
        for n in range(5_000)
    )
    journal = tuple(
        (sample.hour(n / 400), "pod-started" if n % 50 else "decided", f"pod-{n}", "a sentence with a reason")
        for n in range(40_000)
    )
    text = page(replace(outcome, jobs=jobs, journal=journal))
    reader = Reader(text)
    assert len(json.loads(reader.scripts["data"])["jobs"]["rows"]) == 5_000
    assert "The first 500 jobs of 5,000" in reader.text
    assert "38,000 lines of the most frequent kinds are left out" in reader.text
    assert len(text) < 3_000_000


def test_many_nodes_start_collapsed_and_too_many_are_left_out_with_a_note(outcome: Outcome) -> None:
    many = tuple(
        sample.node(f"i-{n:05}", "spot", sample.hour(n / 100), sample.hour(n / 100 + 3)) for n in range(1_500)
    )
    text = page(replace(outcome, nodes=many))
    reader = Reader(text)
    assert "300 more nodes not drawn" in reader.text
    assert [tag for tag, name, _ in reader.attributes if (tag, name) == ("details", "open")] == []
    assert len(text) < 3_000_000


@pytest.mark.requirement("PE-16")
def test_the_verdict_comes_first_with_what_was_saved(outcome: Outcome) -> None:
    text = read(outcome).text
    banner = text[: text.index("GPU-hours used")]
    for words in (
        "Safe, served and worth it",
        "the same work on demand: $22,922; saved $4,077",
        "breaks even at 59 % use",
    ):
        assert words in banner


def test_a_fee_that_was_drawn_says_so_beside_the_catalogs(outcome: Outcome) -> None:
    drawn = replace(sample.BLOCK_A, fee_drawn=True, catalog_fee_usd=10_875)
    assert "drawn; catalog $10,875" in read(replace(outcome, blocks=(drawn,))).text


def test_an_empty_rehearsal_still_makes_a_page(outcome: Outcome) -> None:
    nothing = replace(
        outcome, blocks=(), nodes=(), jobs=(), services=(), evictions=(), journal=(), series=Series(),
        gpu_hours={}, cost_usd={},
    )  # fmt: skip
    text = read(nothing).text
    assert "no forced eviction, no job held, failed or late" in text
    assert "No block was owned or bought" in text


def test_a_block_that_was_never_paid_does_not_count_as_ended(outcome: Outcome) -> None:
    unpaid = sample.block("gamma", state="payment-failed", drain_from=None, drained_at=None)
    text = read(replace(outcome, blocks=(*outcome.blocks, unpaid))).text
    assert "never delivered" in text
    assert "2 of 2 that ended" in text


def test_purchase_problems_deaths_and_warnings_come_before_the_charts(outcome: Outcome) -> None:
    text = page(
        replace(
            outcome,
            purchases=(sample.purchase(note="the platform only proposes"),),
            kills=(KillRow(sample.hour(9), "training/a-0", "ip-1", 300, 0, False),),
            warnings=(WarningRow("week-49", "EC2 offers no block", outcome.start, outcome.end),),
            journal=((sample.hour(70), "extension-refused", "alpha", "the extension was refused"),),
        )
    )
    attention = text[text.index('id="attention"') : text.index('id="timeline"')]
    for sentence in (
        "the platform only proposes",
        "died with ip-1 after 0 s of its 300 s grace",
        "EC2 offers no block",
        "the extension was refused",
    ):
        assert sentence in attention
    reader = Reader(text)
    assert "1 pod died with its node, 1 without its grace" in reader.text
    assert "purchases" in reader.ids
