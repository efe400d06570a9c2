"""What is bought for a plan must be usable by its pool: zones, tags, ids, limits, and the windows of two plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, joined, messages, plan, pool, window
from tidemill.catalog import load as load_catalog
from tidemill.spec.read import load

TWO_ZONES = PLATFORM.replace("[subnet-0a1]}", "[subnet-0a1], us-east-1b: [subnet-0b1]}")

# Of calendars: the days from one to another of November 2026, and a night from Monday to Tuesday.
EIGHTEENTH = "window: {from: 2026-11-18T00:00:00Z, to: 2026-11-21T00:00:00Z, instances"
TWENTIETH = "window: {from: 2026-11-19T12:00:00Z, to: 2026-11-20T12:00:00Z, instances"
AFTER = "window: {from: 2026-11-21T00:00:00Z, to: 2026-11-22T00:00:00Z, instances"
NIGHT = "weekly: {days: [mon], from: '22:00', to: '02:00', instances"

pytestmark = pytest.mark.requirement("CB-4")


def problems(read: Reader, block_pool: str, *plans: str, platform: str = TWO_ZONES) -> list[str]:
    return messages(read(joined(platform, NODE_CLASS, block_pool, *(plans or (plan(window()),)))))


def in_zones(zones: str, **fields: object) -> str:
    return f"{window(**fields)}, zones: {zones}"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            ("sources: [{type: block, tags: {team: x}}]",),
            "uses only blocks with the tags team=x, and blocks are",
        ),
        (("sources: [{type: block, zones: [us-east-1c]}]",), "leave out a block in any zone with subnets"),
        (("sources: [{type: on-demand}]",), "has no source of type 'block'"),
    ],
    ids=["tags", "zones", "no block source"],
)
def test_a_pool_that_could_not_use_any_block_is_an_error(
    read: Reader, lines: tuple[str, ...], says: str
) -> None:
    loaded = read(joined(TWO_ZONES, NODE_CLASS, pool(*lines), plan(window())))
    (error,) = loaded.errors
    assert (error.code, says in error.message) == ("idle-block", True)


def test_tags_that_blocks_are_bought_with_may_be_selected(read: Reader) -> None:
    selected = pool("sources: [{type: block, tags: {team: x, deployment: prod}}]")
    assert problems(read, selected, platform=TWO_ZONES + "  tags: {team: x}\n") == []


def test_a_window_in_a_zone_of_no_source_is_an_error_and_one_more_zone_a_warning(read: Reader) -> None:
    in_b = pool("sources: [{type: block, zones: [us-east-1b]}]")
    (error,) = problems(read, in_b, plan(in_zones("[us-east-1a]")))
    assert "leave out a block in us-east-1a: it could not be used; it may be in us-east-1b" in error
    (warning,) = problems(read, in_b, plan(in_zones("[us-east-1a, us-east-1b]")))
    assert "warning: pool 'training' cannot use a block in us-east-1a: nothing is bought there" in warning
    assert problems(read, in_b) == []  # it is bought where the pool may be


@pytest.mark.requirement("CB-18")
def test_a_pin_to_ids_is_a_supported_mode_where_a_plan_buys_what_follows(read: Reader) -> None:
    pinned = pool("sources: [{type: block, ids: [cr-1]}]")
    assert problems(read, pinned) == []
    assert problems(read, pinned, plan(window()) + "  extend: {policy: never}\n") == []
    (alone,) = messages(read(joined(TWO_ZONES, NODE_CLASS, pinned)))
    assert "no CapacityPlan buys what follows" in alone
    (odcr,) = problems(read, pool("sources: [{type: block}, {type: odcr, ids: [cr-1]}]"))
    assert "no CapacityPlan buys what follows" in odcr


@pytest.mark.parametrize("limits", ["{nodes: 7}", "{gpus: 56}", "{cpu: 1400}", "{memory: 6000Gi}"])
def test_a_window_over_the_limits_of_its_pool_is_an_error(read: Reader, limits: str) -> None:
    block_pool = pool("sources: [{type: block}]", limits=limits)
    (error,) = read(joined(TWO_ZONES, NODE_CLASS, block_pool, plan(window(instances=8)))).errors
    assert "x p5.48xlarge, not 8: the others would be paid for and never run" in error.message


def test_windows_of_a_pool_add_up_whichever_plan_they_are_in(read: Reader) -> None:
    """Limits of 8 hold 4 and 4 at the same time, and no 5 beside them."""
    block_pool = pool("sources: [{type: block}]")
    first = plan(window(instances=4))
    other = plan(window(name="run-2", start="2026-11-17T11:30:00Z", instances=4)).replace("november", "team")
    assert problems(read, block_pool, first, other) == []
    third = plan(window(name="run-3", start="2026-11-18T11:30:00Z", instances=1)).replace("november", "late")
    (error,) = problems(read, block_pool, first, other, third)
    assert "with 'run-1', 'run-2' at the same time, this is more than the limits of pool 'training'" in error
    after = plan(window(name="run-3", start="2026-11-20T11:30:00Z", end="2026-11-22T11:30:00Z"))
    assert problems(read, block_pool, first, other, after.replace("november", "late")) == []


def test_the_same_window_in_two_plans_is_an_error(read: Reader) -> None:
    """It is most likely a copy, and both would be bought."""
    block_pool = pool("sources: [{type: block}]", limits="{nodes: 64}")
    again = plan(window(name="run-2", instances=2)).replace("november", "again")
    (error,) = problems(read, block_pool, plan(window()), again)
    assert "plan 'november' asks for the same type at the same time for this pool, as window 'run-1'" in error
    assert "remove one, or write it in that plan to have both" in error
    assert problems(read, block_pool, plan(window(), window(name="run-2", instances=2))) == []


def test_nearly_the_same_window_in_two_plans_is_a_warning(read: Reader) -> None:
    """Half an hour apart it is the same block, bought twice."""
    block_pool = pool("sources: [{type: block}]", limits="{nodes: 64}")
    later = plan(window(name="run-2", end="2026-11-20T12:00:00Z")).replace("november", "again")
    (warning,) = problems(read, block_pool, plan(window()), later)
    assert "warning: plan 'november' asks for the same type at nearly the same time" in warning
    other = plan(window(name="run-2", end="2026-11-21T11:30:00Z")).replace("november", "again")
    assert problems(read, block_pool, plan(window()), other) == []


def test_ultraservers_are_bought_whole_so_the_limits_must_hold_whole_ones(tmp_path: Path) -> None:
    name = "p6e-gb200.36xlarge"
    small = pool("sources: [{type: block}]", types=f"[{name}]", limits="{nodes: 8}")
    path = tmp_path / "a.yaml"
    path.write_text(joined(TWO_ZONES, NODE_CLASS, small, plan(window(instances=4, type=name))))
    said = [error.message for error in load([path], load_catalog()).errors]
    assert f"the limits of pool 'training' allow 8 x {name}, not 9" in " ".join(said)


@pytest.mark.parametrize(
    ("entries", "fits"),
    [
        ("[{name: a, constant: {instances: 8}}]", True),
        ("[{name: a, constant: {instances: 9}}]", False),
        ("[{name: a, constant: {instances: 4}}, {name: b, weekly: {days: [mon], instances: 5}}]", False),
        (
            "[{name: a, weekly: {days: [tue], instances: 8}}, {name: b, weekly: {days: [mon], instances: 8}}]",
            True,
        ),
        (f"[{{name: a, {EIGHTEENTH}: 4}}}}, {{name: b, {TWENTIETH}: 5}}}}]", False),
        (f"[{{name: a, {EIGHTEENTH}: 8}}}}, {{name: b, {AFTER}: 8}}}}]", True),
        (f"[{{name: a, weekly: {{days: [thu], instances: 5}}}}, {{name: b, {TWENTIETH}: 4}}}}]", False),
        (f"[{{name: a, weekly: {{days: [mon], instances: 5}}}}, {{name: b, {TWENTIETH}: 4}}}}]", True),
        (
            f"[{{name: a, {NIGHT}: 4}}}}, {{name: b, weekly: {{days: [tue], to: '03:00', instances: 5}}}}]",
            False,
        ),
        ("[{name: a, learned: {mostInstances: 9}}]", False),
    ],
)
def test_a_calendar_over_the_limits_of_its_pool_is_an_error(read: Reader, entries: str, fits: bool) -> None:
    head = "kind: CapacityPlan\nmetadata: {name: always}\nspec:\n  pool: training\n"
    calendar = head + f"  calendar: {{instanceTypes: [p5.48xlarge], entries: {entries}}}\n"
    found = problems(read, pool("sources: [{type: block}]"), calendar)
    assert (found == []) == fits
    if not fits:
        assert "x p5.48xlarge at a time, and the limits of pool 'training' allow 8" in found[0]
