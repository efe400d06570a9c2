"""Rules across documents and the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, block, joined, messages, plan, pool, scenario, window
from tidemill.spec.read import load

BLOCK_POOL = pool("sources: [{type: block}]")
LARGE_POOL = pool("sources: [{type: block}]", limits="{nodes: 400}")


def test_a_missing_node_class_suggests_the_nearest_name(read: Reader) -> None:
    assert messages(read(pool(), NODE_CLASS.replace("name: gpu", "name: gpus"))) == [
        "a.yaml:4:18: no NodeClass is named 'gpu'; did you mean 'gpus'?"
    ]


def test_names_are_unique_within_a_kind(read: Reader) -> None:
    (only,) = messages(read(NODE_CLASS, joined(pool(name="gpu"), NODE_CLASS)))
    assert only.startswith("b.yaml:9:18: NodeClass 'gpu' is already defined at ")
    assert only.endswith("a.yaml:2:18")


def test_there_is_one_platform(read: Reader) -> None:
    (only,) = messages(read(PLATFORM, PLATFORM.replace("name: prod}\nspec", "name: test}\nspec")))
    assert only.startswith(
        "b.yaml:2:18: 'test' is a second Platform; a run has one, and 'prod' is already defined at"
    )


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        ("{instanceFamilies: [p5x]}", "unknown instance family 'p5x'; did you mean 'p5'?"),
        ("{instanceCategories: [q]}", "unknown instance category 'q'; valid: g, p"),
        ("{instanceTypes: [p5.48xlrge]}", "unknown instance type 'p5.48xlrge'; did you mean 'p5.48xlarge'?"),
        (
            "{instanceFamilies: [p5], arch: arm64}",
            "no instance type of the catalog meets the requirements of pool 'training'",
        ),
    ],
)
def test_requirements_that_no_type_meets_are_refused(read: Reader, requirements: str, message: str) -> None:
    text = pool().replace("{instanceTypes: [p5.48xlarge]}", requirements)
    assert [problem.message for problem in read(text, NODE_CLASS).problems] == [message]


@pytest.mark.requirement("TR-9")
@pytest.mark.parametrize("limits", ["{}", ""])
def test_warns_of_a_pool_without_limits(read: Reader, limits: str) -> None:
    (problem,) = read(pool(limits=limits), NODE_CLASS).problems
    assert (problem.code, problem.severity) == ("TR-9", "warning")
    assert (
        problem.message == "pool 'training' has no limits, so it launches nothing; set limits, such as 'gpus'"
    )


def test_a_spec_with_warnings_can_be_used(read: Reader) -> None:
    loaded = read(joined(PLATFORM, NODE_CLASS, pool(limits="{}")))
    assert loaded.warnings
    assert loaded.checked_spec().pools["training"]


@pytest.mark.parametrize("alias", ["al2023@latest", "bottlerocket"])
def test_warns_of_an_image_that_is_not_pinned(read: Reader, alias: str) -> None:
    (problem,) = read(NODE_CLASS.replace("bottlerocket@v1.52.0", alias)).problems
    assert (problem.code, problem.severity, problem.line, problem.column) == ("TR-8", "warning", 4, 30)


def test_warns_of_pinning_to_reservation_ids(read: Reader) -> None:
    (problem,) = read(pool("sources: [{type: block, ids: [cr-1]}]"), NODE_CLASS).problems
    assert (problem.code, problem.severity) == ("TR-3", "warning")


def test_warns_of_a_cpu_limit_that_is_not_a_multiple_of_the_node_size(read: Reader) -> None:
    (problem,) = read(pool(limits="{cpu: 200}"), NODE_CLASS).problems
    assert problem.code == "TR-18"
    assert problem.message.endswith("write 192 or 384")


@pytest.mark.parametrize("limits", ["{cpu: 384}", "{gpus: 8}"])
def test_a_cpu_limit_of_whole_nodes_gives_no_warning(read: Reader, limits: str) -> None:
    assert messages(read(pool(limits=limits), NODE_CLASS)) == []


def test_a_cpu_limit_over_types_of_several_sizes_gives_no_warning(read: Reader) -> None:
    assert messages(read(pool(limits="{cpu: 100}", types="[g6.xlarge, g6.48xlarge]"), NODE_CLASS)) == []


@pytest.mark.parametrize("source", ["spot, ids: [cr-1]", "on-demand, tags: {a: b}"])
def test_refuses_ids_and_tags_on_a_source_without_reservations(read: Reader, source: str) -> None:
    (problem,) = read(pool(f"sources: [{{type: {source}}}]"), NODE_CLASS).errors
    assert "selects reservations" in problem.message


@pytest.mark.requirement("PE-18")
@pytest.mark.parametrize(
    ("overflow", "absent"),
    [
        ("type: on-demand", "'maxHourlyUsd' and 'maxMonthlyUsd'"),
        ("type: spot, maxHourlyUsd: 9", "'maxMonthlyUsd'"),
        ("type: spot, maxMonthlyUsd: 9", "'maxHourlyUsd'"),
    ],
)
@pytest.mark.parametrize("reserved", ["block", "odcr"])
def test_overflow_without_both_caps_is_refused(
    read: Reader, reserved: str, overflow: str, absent: str
) -> None:
    (problem,) = read(pool(f"sources: [{{type: {reserved}}}, {{{overflow}}}]"), NODE_CLASS).errors
    assert problem.code == "overflow-cap"
    assert problem.message.endswith(f"has no cap: set {absent}")


@pytest.mark.requirement("PE-18")
def test_capped_overflow_and_plain_on_demand_pools_are_accepted(read: Reader) -> None:
    capped = "{type: on-demand, maxHourlyUsd: 100, maxMonthlyUsd: 5000}"
    assert messages(read(joined(NODE_CLASS, pool(f"sources: [{{type: block}}, {capped}]")))) == []
    assert messages(read(joined(NODE_CLASS, pool("sources: [{type: spot}, {type: on-demand}]")))) == []


# --- plans --------------------------------------------------------------------------------------------


def test_refuses_a_plan_for_a_pool_that_cannot_use_its_blocks(read: Reader) -> None:
    assert [
        p.message for p in read(joined(NODE_CLASS, BLOCK_POOL, plan(window(), pool="trainin"))).errors
    ] == ["no ComputePool is named 'trainin'; did you mean 'training'?"]
    assert [p.message for p in read(joined(NODE_CLASS, pool(), plan(window()))).errors] == [
        "pool 'training' has no source of type 'block': it could not use the blocks bought for it"
    ]
    assert [
        p.message for p in read(joined(NODE_CLASS, BLOCK_POOL, plan(window(type="p4d.24xlarge")))).errors
    ] == ["the requirements of pool 'training' exclude p4d.24xlarge"]


@pytest.mark.requirement("CB-2")
def test_accepts_any_window_up_to_182_days(read: Reader) -> None:
    assert messages(read(joined(NODE_CLASS, BLOCK_POOL, plan(window(end="2027-05-15T11:30:00Z"))))) == []
    (problem,) = read(joined(NODE_CLASS, BLOCK_POOL, plan(window(end="2027-05-18T11:30:00Z")))).errors
    assert problem.message == "a window of 183d is longer than any block EC2 sells (182d); split it in two"


@pytest.mark.requirement("CB-2")
@pytest.mark.parametrize(("written", "near"), [(1, "9"), (17, "9 or 18"), (10, "9 or 18"), (9, ""), (36, "")])
def test_refuses_a_part_of_an_ultraserver(tmp_path: Path, written: int, near: str) -> None:
    gb200 = "p6e-gb200.36xlarge"
    whole = joined(
        NODE_CLASS,
        pool("sources: [{type: block}]", types=f"[{gb200}]", limits="{nodes: 64}"),
        plan(window(instances=written, type=gb200)),
    )
    sentence = f"EC2 sells {gb200} by the UltraServer, 9 or 18 instances each: write {near}, not {written}"
    (tmp_path / "all.yaml").write_text(whole)
    found = load([tmp_path / "all.yaml"])  # against the catalog that ships
    assert [problem.message for problem in found.errors] == ([sentence] if near else [])


@pytest.mark.requirement("CB-2")
def test_refuses_more_than_64_instances_a_block(read: Reader) -> None:
    assert messages(read(joined(NODE_CLASS, LARGE_POOL, plan(window(instances=64))))) == []
    (problem,) = read(joined(NODE_CLASS, LARGE_POOL, plan(window(instances=65)))).errors
    assert problem.code == "block-size"
    (problem,) = read(scenario(f"reservations: [{block(count=65)}]")).errors
    assert problem.message == "EC2 sells at most 64 instances in one block, not 65"


@pytest.mark.requirement("CB-2")
def test_refuses_more_than_256_instances_on_a_date_over_all_windows(read: Reader) -> None:
    four = [window(name=f"w{i}", instances=64) for i in range(4)]
    assert messages(read(joined(NODE_CLASS, LARGE_POOL, plan(*four)))) == []
    later = window(name="later", start="2026-11-20T11:30:00Z", end="2026-11-21T11:30:00Z", instances=64)
    assert messages(read(joined(NODE_CLASS, LARGE_POOL, plan(*four, later)))) == []
    (problem,) = read(joined(NODE_CLASS, LARGE_POOL, plan(*four, window(name="w4", instances=1)))).errors
    assert (
        problem.message
        == "with 'w4' there would be 257 instances in blocks on one date; EC2 allows at most 256"
    )


@pytest.mark.requirement("CB-2")
def test_refuses_more_than_256_instances_on_a_date_over_all_blocks(read: Reader) -> None:
    blocks = ", ".join(block(name=f"b{i}", count=64) for i in range(5))
    (problem,) = read(scenario(f"reservations: [{blocks}]")).errors
    assert problem.message.startswith("with 'b4' there would be 320 instances")


def test_window_names_are_unique(read: Reader) -> None:
    (problem,) = read(joined(NODE_CLASS, LARGE_POOL, plan(window(), window()))).errors
    assert problem.message.startswith("window 'run-1' is already defined at ")


def test_a_window_needs_a_type_that_is_sold_as_blocks(read: Reader) -> None:
    text = joined(
        NODE_CLASS, pool("sources: [{type: block}]", types="[g6.xlarge]"), plan(window(type="g6.xlarge"))
    )
    assert [problem.message for problem in read(text).errors] == [
        "EC2 does not sell g6.xlarge as Capacity Blocks"
    ]


# --- scenarios ----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-2")
@pytest.mark.requirement("TR-1")
@pytest.mark.parametrize(
    ("duration", "hint"),
    [
        ("180d", "180d is not a duration EC2 sells; the nearest are 175d and 182d"),
        ("36h", "1d12h is not a duration EC2 sells; the nearest are 1d and 2d"),
        ("365d", "365d is not a duration EC2 sells; the nearest is 182d"),
        ("12h", "12h is not a duration EC2 sells; the nearest is 1d"),
    ],
)
def test_refuses_a_duration_ec2_does_not_sell(read: Reader, duration: str, hint: str) -> None:
    assert [p.message for p in read(scenario(f"reservations: [{block(duration=duration)}]")).errors] == [hint]
    extension = f"extensions: [{{at: 1h, block: a, by: {duration}}}]"
    assert hint in [
        p.message for p in read(scenario(f"reservations: [{block(duration='1d')}]", extension)).errors
    ]


def test_accepts_an_on_demand_reservation_of_any_length(read: Reader) -> None:
    text = scenario(f"reservations: [{block(duration='180d', type='g6.xlarge', more='type: odcr')}]")
    assert messages(read(text)) == []


def test_refuses_a_block_without_a_duration(read: Reader) -> None:
    (problem,) = read(scenario(f"reservations: [{block().replace(', duration: 7d', '')}]")).errors
    assert problem.message == "block 'a' needs a 'duration': every block ends"


def test_an_extension_cannot_make_a_block_longer_than_182_days(read: Reader) -> None:
    text = scenario(f"reservations: [{block(duration='182d')}]", "extensions: [{at: 1h, block: a, by: 1d}]")
    assert [p.message for p in read(text).errors] == [
        "the extended block would last 183d; EC2 allows at most 182d"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"reservations: [{block(type='g6.xlarge')}]", "EC2 does not sell g6.xlarge as Capacity Blocks"),
        (f"reservations: [{block(type='p6.x')}]", "unknown instance type 'p6.x'"),
        (f"reservations: [{block(more='pool: nope')}]", "no ComputePool is named 'nope'"),
        (
            f"reservations: [{block(more='delivered: 5')}]",
            "'delivered' (5) must not be more than 'count' (4)",
        ),
        (f"reservations: [{block()}, {block()}]", "a reservation 'a' is already listed"),
        ("decisions: [{at: 1h, window: run-9, verdict: approve}]", "no plan has a window 'run-9'"),
        ("extensions: [{at: 1h, block: b, by: 7d}]", "no block is named 'b'"),
        (
            "rolls: [{at: 1h, nodeClass: nope, ami: {alias: al2023@v20261201}}]",
            "no NodeClass is named 'nope'",
        ),
        (
            "services: [{name: s, replicas: 2, minAvailable: 3}]",
            "service 's' has 2 replicas, so it can never have 3 available",
        ),
        ("services: [{name: s, replicas: 2, zeroDowntime: true}]", "zeroDowntime has no effect"),
        (
            "faults: [{at: 1h, fault: node-dies, target: nobody}]",
            "no pool, block or instance type is named 'nobody'",
        ),
    ],
)
def test_refuses_a_scenario_line_that_cannot_happen(read: Reader, line: str, message: str) -> None:
    (problem,) = read(scenario(line)).problems
    assert problem.message.startswith(message)


def test_a_fault_may_target_a_pool_a_block_or_a_type(read: Reader) -> None:
    faults = ", ".join(
        f"{{at: 1h, fault: node-dies, target: {t}}}" for t in ("a", "training", "g6.xlarge", "''")
    )
    text = joined(NODE_CLASS, BLOCK_POOL, scenario(f"reservations: [{block()}]", f"faults: [{faults}]"))
    assert messages(read(text)) == []


def test_a_decision_about_an_invalid_plan_is_not_reported(read: Reader) -> None:
    broken = plan(window(start="tomorrow"))
    text = joined(
        NODE_CLASS, BLOCK_POOL, broken, scenario("decisions: [{at: 1h, window: run-1, verdict: approve}]")
    )
    assert [problem.code for problem in read(text).problems] == ["value"]


@pytest.mark.parametrize("start", ["9999-12-31T23:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_scenario_in_the_year_9999_is_a_problem_and_does_not_crash(read: Reader, start: str) -> None:
    text = scenario(f"reservations: [{block()}]").replace("2026-11-16T00:00:00Z", start)
    (problem,) = read(text).errors
    assert problem.message.endswith("is outside the years 2000 to 2200")
    assert (problem.line, problem.column) == (4, 10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("arrivals: {every: 0s}, duration: {fixed: 1h}", "jobs[0].arrivals.every must be longer than 0s"),
        (
            "arrivals: {perHour: 0.0000000000000001}, duration: {fixed: 1h}",
            "jobs[0].arrivals.perHour must be at least 0.0001",
        ),
        (
            "arrivals: {at: [1h]}, duration: {lognormal: {median: 0s, sigma: 1}}",
            "jobs[0].duration.lognormal.median must be longer than 0s",
        ),
        (
            "arrivals: {at: [1h]}, duration: {fixed: 1h}, checkpointEvery: 0s",
            "jobs[0].checkpointEvery must be longer than 0s",
        ),
        (
            "arrivals: {at: [1h]}, duration: {uniform: [5h, 1h]}",
            "jobs[0].duration: 'uniform' must be the shortest and then the longest duration; swap them",
        ),
    ],
)
def test_refuses_a_job_stream_that_cannot_be_played(read: Reader, line: str, message: str) -> None:
    assert [p.message for p in read(scenario(f"jobs: [{{name: j, {line}}}]")).errors] == [message]


def test_refuses_a_scenario_of_length_zero(read: Reader) -> None:
    (problem,) = read(scenario().replace("30d", "0s")).errors
    assert problem.message == "duration must be longer than 0s"


def test_names_of_job_streams_and_services_are_unique(read: Reader) -> None:
    jobs = [f"    - {{name: {name}, arrivals: {{at: [1h]}}, duration: {{fixed: 1h}}}}" for name in "aba"]
    (only,) = messages(read(scenario("jobs:", *(line[2:] for line in jobs))))
    assert only.startswith("a.yaml:9:14: job stream 'a' is already defined at ")
    assert only.endswith("a.yaml:7:14")
    (only,) = messages(read(scenario("services: [{name: s, replicas: 1}, {name: s, replicas: 2}]")))
    assert only.startswith("a.yaml:6:45: service 's' is already defined at ")
