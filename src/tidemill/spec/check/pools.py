"""ComputePool: what it refers to exists, what it may spend is capped, what it may launch is bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool, SourceSpec, kubelet_may_set, matching_types
from tidemill.spec.located import Written
from tidemill.spec.problem import Problem, quoted, suggestion
from tidemill.spec.units import format_cpu

RESERVED = ("block", "odcr")  # capacity that is reserved; the other sources are paid by the hour


def node_class_exists(shelf: Shelf) -> Iterator[Problem]:
    for pool in shelf.all(ComputePool):
        yield from shelf.missing(pool, ("nodeClassName",), "NodeClass", pool.model.spec.node_class_name)


def instance_types_exist(shelf: Shelf) -> Iterator[Problem]:
    """The catalog knows every word of the requirements, and together they leave something to launch."""
    types = shelf.catalog.types
    families = {each.family for each in types.values()}
    categories = {each.category for each in types.values()}
    for pool in shelf.all(ComputePool):
        wanted = pool.model.spec.requirements
        unknown = [
            *_unknown(
                pool, "instanceCategories", wanted.instance_categories, categories, "instance category"
            ),
            *_unknown(pool, "instanceFamilies", wanted.instance_families, families, "instance family"),
            *_unknown(pool, "instanceTypes", wanted.instance_types, types, "instance type"),
        ]
        yield from unknown
        if not unknown and not matching_types(shelf.catalog, wanted):
            message = f"the requirements of pool {quoted(pool.name)} leave no instance type in the catalog"
            yield pool.error(("requirements",), message, "no-instance-type")


def _unknown(
    pool: Written[ComputePool], key: str, given: tuple[str, ...], valid: Iterable[str], what: str
) -> Iterator[Problem]:
    names = set(valid)
    for index, name in enumerate(given):
        if name not in names:
            message = f"unknown {what} {quoted(name)}; {suggestion(name, names)}"
            yield pool.error(("requirements", key, index), message, "instance-type")


def sources_make_sense(shelf: Shelf) -> Iterator[Problem]:
    for pool in shelf.all(ComputePool):
        for index, source in enumerate(pool.model.spec.sources):
            if source.type not in RESERVED:
                yield from _nothing_to_select(pool, index, source)
            elif source.ids:
                yield pool.warning(
                    ("sources", index, "ids"),
                    "pinned to reservation ids: when they end the pool has nothing until someone edits this;"
                    " select by 'tags' so that the next block is taken up by itself",
                    "TR-3",
                )


def _nothing_to_select(pool: Written[ComputePool], index: int, source: SourceSpec) -> Iterator[Problem]:
    for key, given in (("ids", source.ids), ("tags", source.tags)):
        if given:
            message = f"{quoted(key)} selects reservations, and a source of type '{source.type}' has none"
            yield pool.error(("sources", index, key), message, "source")


def overflow_is_capped(shelf: Shelf) -> Iterator[Problem]:
    """Fail closed: beside reserved capacity, money by the hour needs both caps."""
    for pool in shelf.all(ComputePool):
        sources = pool.model.spec.sources
        if not any(source.type in RESERVED for source in sources):
            continue
        for index, source in enumerate(sources):
            caps = (("maxHourlyUsd", source.max_hourly_usd), ("maxMonthlyUsd", source.max_monthly_usd))
            absent = [key for key, cap in caps if cap is None]
            if source.type not in RESERVED and absent:
                yield pool.error(
                    ("sources", index),
                    f"overflow to {source.type} has no cap: set {' and '.join(map(quoted, absent))}",
                    "overflow-cap",
                )


def limits_are_set(shelf: Shelf) -> Iterator[Problem]:
    for pool in shelf.all(ComputePool):
        limits = pool.model.spec.limits
        if limits is None or not limits.model_dump(exclude_none=True):
            yield pool.warning(
                ("limits",),
                f"pool {quoted(pool.name)} has no limits, so it launches nothing; set them, such as 'gpus'",
                "TR-9",
            )


def cpu_limit_is_whole_nodes(shelf: Shelf) -> Iterator[Problem]:
    """Only where all types that could be launched have one vCPU count: else there is no right multiple."""
    for pool in shelf.all(ComputePool):
        limits, requirements = pool.model.spec.limits, pool.model.spec.requirements
        sizes = {each.vcpus for each in matching_types(shelf.catalog, requirements)}
        if limits is None or limits.cpu is None or len(sizes) != 1:
            continue
        vcpus = sizes.pop()
        nodes, rest = divmod(limits.cpu, vcpus * 1000)
        if rest:
            yield pool.warning(
                ("limits", "cpu"),
                f"a limit of {format_cpu(limits.cpu)} CPU is {nodes} nodes of {vcpus} vCPUs and a rest that"
                f" launches nothing; write {nodes * vcpus} or {(nodes + 1) * vcpus}",
                "TR-18",
            )


def prepaid_nodes_stay(shelf: Shelf) -> Iterator[Problem]:
    for pool in shelf.all(ComputePool):
        blocks = any(source.type == "block" for source in pool.model.spec.sources)
        if blocks and pool.model.spec.disruption.consolidate_blocks:
            yield pool.warning(
                ("disruption", "consolidateBlocks"),
                "nodes of a block are paid for whether they run or not: taking them away saves nothing, and bringing"
                " them back takes minutes",
                "TR-5",
            )


def nodes_may_set_their_labels(shelf: Shelf) -> Iterator[Problem]:
    for pool in shelf.all(ComputePool):
        for label in pool.model.spec.labels:
            if not kubelet_may_set(label):
                yield pool.warning(
                    ("labels", label),
                    f"a node may not give itself the label {quoted(label)}: its kubelet would not start;"
                    " use a prefix of your own",
                    "label",
                )


def budgets_can_be_kept(shelf: Shelf) -> Iterator[Problem]:
    """A count or a percentage, and a window that a cron line and a duration describe together."""
    for pool in shelf.all(ComputePool):
        for index, budget in enumerate(pool.model.spec.disruption.budgets):
            where = ("disruption", "budgets", index)
            if re.fullmatch(r"[0-9]{1,6}|(100|[0-9]{1,2})%", budget.nodes) is None:
                message = (
                    f"{quoted(budget.nodes)} is neither a number of nodes nor a percentage such as '10%'"
                )
                yield pool.error((*where, "nodes"), message, "budget")
            if (budget.schedule is None) != (budget.duration is None):
                missing = "duration" if budget.duration is None else "schedule"
                yield pool.error(
                    where, f"a window needs a schedule and a duration; {missing} is missing", "budget"
                )
            elif budget.duration is not None and budget.duration < timedelta(minutes=1):
                yield pool.error((*where, "duration"), "a window lasts a minute at least", "budget")
            elif budget.schedule is not None and (wrong := _wrong_schedule(budget.schedule)) is not None:
                message = f"{quoted(budget.schedule)} is no cron line ({wrong}); five fields in UTC, e.g. '0 9 * * 1-5'"
                yield pool.error((*where, "schedule"), message, "budget")


def _wrong_schedule(schedule: str) -> str | None:
    from cronsim import CronSim, CronSimError  # only where somebody has a schedule

    if len(schedule.split()) != 5:
        return "it has not five fields"
    try:
        next(CronSim(schedule, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return str(error).lower()
    except StopIteration:
        return "it never comes"
    return None
