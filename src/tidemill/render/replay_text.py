"""What a recording says, as text: whether plans were the same, one pod's story, two sets of documents side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidemill import __version__
from tidemill.recording.replay import Agreement, Comparison, PodChapter, ReplayedTick, Side, actions_of
from tidemill.render.figures import counted, hours, usd
from tidemill.sim.scenario.outcome import JobRow, Outcome

_MOST_ACTIONS = 5


def _at(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def agreement_text(agreement: Agreement, versions: Sequence[str]) -> str:
    if not agreement.ticks or agreement.first is None or agreement.last is None:
        return "No tick can be read."
    by = " and ".join(versions)
    lines = [
        f"{counted(agreement.ticks, 'tick')} from {_at(agreement.first)} to {_at(agreement.last)}, by Tidemill {by}."
    ]
    if agreement.differ:
        lines.append(f"{counted(agreement.differ, 'plan')} of them differ from what is decided now.")
        assert agreement.first_difference is not None
        lines += difference_lines(agreement.first_difference)
        if list(versions) != [__version__]:
            lines.append(f"This is Tidemill {__version__}: another version may decide otherwise.")
    else:
        lines.append("Every plan is identical, byte for byte.")
    for tick in agreement.failed:
        again = "The same is raised again" if tick.error else "Deciding does not fail now"
        lines += ["", f"The tick at {_at(tick.recorded.world.now)} failed:", tick.recorded.error.rstrip()]
        lines += [f"{again}{':' if tick.error else '.'}", *tick.error.rstrip().splitlines()]
    return "\n".join(lines)


def difference_lines(tick: ReplayedTick) -> list[str]:
    then, now = actions_of(tick.recorded.actions), actions_of(tick.actions)
    lines = [f"The first: {_at(tick.recorded.world.now)}"]
    if tick.error:
        return [*lines, "  deciding fails now:", *(f"  {line}" for line in tick.error.rstrip().splitlines())]
    if not tick.recorded.plan:
        return [*lines, "  no plan was made then, because the tick failed; now there is one"]
    if then == now:
        return [*lines, "  the same actions; what is said of waiting pods, warnings or the next look differs"]
    for title, some, others in (("then, not now", then, now), ("now, not then", now, then)):
        only = [one for one in some if one not in others]
        lines += [f"  {title}: {one}" for one in only[:_MOST_ACTIONS]]
        if len(only) > _MOST_ACTIONS:
            lines.append(f"  {title}: {len(only) - _MOST_ACTIONS} more")
    return lines


def difference_json(tick: ReplayedTick | None) -> dict[str, Any] | None:
    if tick is None:
        return None
    from tidemill.report.rows import plain

    return {
        "at": plain(tick.recorded.world.now),
        "then": plain(actions_of(tick.recorded.actions)),
        "now": plain(actions_of(tick.actions)),
        "error": tick.error,
    }


def instant_head(tick: ReplayedTick) -> str:
    recorded = tick.recorded
    lines = [f"RECORDED  {_at(recorded.world.now)}, by Tidemill {recorded.version}"]
    if recorded.woken_by:
        lines.append(f"woken by  {', '.join(recorded.woken_by)}")
    lines += [f"failed    {one}" for one in recorded.failed]
    if recorded.error:
        lines += ["The tick failed:", recorded.error.rstrip()]
    if not tick.same:
        lines.append("What is decided now is not what was decided then.")
    return "\n".join(lines)


def story_text(chapters: Sequence[PodChapter]) -> str:
    several = len({one.pod for one in chapters}) > 1
    return "\n".join(f"{_at(one.at)}  {f'{one.pod} ' if several else ''}{one.sentence}" for one in chapters)


# --- other documents --------------------------------------------------------------------------------------


def comparison_json(found: Comparison) -> dict[str, Any]:
    return {
        "ticks": found.ticks,
        "differ": found.differ,
        "recorded": _side(found.then),
        "others": _side(found.other),
        "first_differences": [
            {
                "at": one.at.isoformat(),
                "only_recorded": list(one.only_then),
                "only_others": list(one.only_with),
            }
            for one in found.differences
        ],
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "actions": dict(sorted(side.actions.items())),
        "waiting_pod_hours": round(side.pods_waiting.total_seconds() / 3600, 3),
        "warnings": side.warnings,
    }


def comparison_text(found: Comparison) -> str:
    if not found.ticks:
        return "No tick can be read."
    lines = [
        "Decisions on the recorded worlds, tick by tick. The recorded world does not react to the other documents:",
        "a node that they would launch never comes, and what they ask for again and again counts once. It shows where",
        "they decide otherwise, not how it would have gone.",
        f"{found.differ:,} of {counted(found.ticks, 'tick')} have other actions.",
        "",
        f"{'':28}{'recorded':>12}{'others':>12}",
        f"{'pod-hours left waiting':28}{_hours(found.then):>12}{_hours(found.other):>12}",
    ]
    lines += [
        f"{kind:28}{found.then.actions[kind]:>12,}{found.other.actions[kind]:>12,}"
        for kind in sorted(found.then.actions | found.other.actions)
    ]
    if found.differences:
        lines += ["", "The first differences:"]
    for one in found.differences:
        lines.append(f"  {_at(one.at)}")
        lines += [f"    recorded: {said}" for said in one.only_then[:_MOST_ACTIONS]]
        lines += [f"    others:   {said}" for said in one.only_with[:_MOST_ACTIONS]]
    return "\n".join(lines)


def rehearsals_text(sides: Mapping[str, Outcome]) -> str:
    """How it would have gone: two rehearsals from the first recorded world, side by side."""
    rows: list[tuple[str, Callable[[Outcome], str]]] = [
        ("safe", lambda one: "yes" if one.verdict.safe else "NO"),
        ("served", lambda one: "yes" if one.verdict.served else "NO"),
        ("cost", lambda one: usd(one.cost_usd["total"])),
        ("of that idle", lambda one: usd(one.cost_usd["idle"])),
        ("nodes launched", lambda one: f"{len(one.nodes):,}"),
        (
            "jobs finished",
            lambda one: f"{sum(job.state == 'finished' for job in one.jobs):,} of {len(one.jobs):,}",
        ),
        ("hours waited", lambda one: hours(sum(_waited_h(job, one.end) for job in one.jobs))),
        ("evictions", lambda one: f"{len(one.evictions):,}"),
        ("pods killed", lambda one: f"{len(one.kills):,}"),
    ]
    lines = [
        "How it would have gone: rehearsals from the first recorded world, with the jobs that came. Machines, markets",
        "and durations are simulated: compare the two with each other, not with what happened.",
        "",
        f"{'':28}{'recorded':>16}{'others':>16}",
    ]
    lines += [f"{name:28}{read(sides['recorded']):>16}{read(sides['others']):>16}" for name, read in rows]
    return "\n".join(lines)


def _waited_h(job: JobRow, end: datetime) -> float:
    return ((job.started or end) - job.arrived).total_seconds() / 3600


def _hours(side: Side) -> str:
    return hours(side.pods_waiting.total_seconds() / 3600)
