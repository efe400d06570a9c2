"""ComputePool and NodeClass: references exist, spending is capped, launches are limited, images are pinned and new
enough, and the Karpenter of the cluster can do what its pools ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations

from tidemill.catalog.image_drivers import CUDA, OLDEST_DRIVER, driver_of, too_old
from tidemill.spec import traps
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.check.document_set import DocumentSet, LocatedDocument
from tidemill.spec.compute_pool import ComputePool, Provisioner, SourceSpec, kubelet_may_set, matching_types
from tidemill.spec.names import NVIDIA_GPU
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import KARPENTER_CAPACITY_BLOCKS, Platform
from tidemill.spec.problem import Problem, quoted, suggestion
from tidemill.spec.scenario import Scenario

RESERVED = ("block", "odcr")  # the other sources are paid by the hour


def node_class_exists(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        yield from documents.missing(pool, ("nodeClassName",), "NodeClass", pool.model.spec.node_class_name)


def instance_types_exist(documents: DocumentSet) -> Iterator[Problem]:
    """The catalog has every category, family and type of the requirements, and at least one type meets them all."""
    types = documents.catalog.types
    families = {each.family for each in types.values()}
    categories = {each.category for each in types.values()}
    for pool in documents.all(ComputePool):
        wanted = pool.model.spec.requirements
        unknown = [
            *_unknown(
                pool, "instanceCategories", wanted.instance_categories, categories, "instance category"
            ),
            *_unknown(pool, "instanceFamilies", wanted.instance_families, families, "instance family"),
            *_unknown(pool, "instanceTypes", wanted.instance_types, types, "instance type"),
        ]
        yield from unknown
        if not unknown and not matching_types(documents.catalog, wanted):
            message = f"no instance type of the catalog meets the requirements of pool {quoted(pool.name)}"
            yield pool.error(("requirements",), message, "no-instance-type")


def _unknown(
    pool: LocatedDocument[ComputePool], key: str, given: tuple[str, ...], valid: Iterable[str], what: str
) -> Iterator[Problem]:
    names = set(valid)
    for index, name in enumerate(given):
        if name not in names:
            message = f"unknown {what} {quoted(name)}; {suggestion(name, names)}"
            yield pool.error(("requirements", key, index), message, "instance-type")


def sources_make_sense(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        for index, source in enumerate(pool.model.spec.sources):
            if source.type not in RESERVED:
                yield from _nothing_to_select(pool, index, source)
            elif source.ids and not (source.type == "block" and _is_bought_for(documents, pool.name)):
                yield pool.warning(
                    ("sources", index, "ids"),
                    "pinned to reservation ids, and no CapacityPlan buys what follows: when these reservations end, the"
                    " pool has no capacity until someone edits this list; select by 'tags', or write a plan: the pin"
                    " moves on to blocks that are bought for the pool",
                    "TR-3",
                )


def _is_bought_for(documents: DocumentSet, pool: str) -> bool:
    return any(plan.model.spec.pool == pool for plan in documents.all(CapacityPlan))


def _nothing_to_select(
    pool: LocatedDocument[ComputePool], index: int, source: SourceSpec
) -> Iterator[Problem]:
    for key, given in (("ids", source.ids), ("tags", source.tags)):
        if given:
            message = f"{quoted(key)} selects reservations, but a source of type '{source.type}' uses none; remove it"
            yield pool.error(("sources", index, key), message, "source")


def overflow_is_capped(documents: DocumentSet) -> Iterator[Problem]:
    """A source that is paid by the hour beside reserved capacity needs both caps."""
    for pool in documents.all(ComputePool):
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


def limits_are_set(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        limits = pool.model.spec.limits
        if limits is None or not limits.model_dump(exclude_none=True):
            yield pool.warning(
                ("limits",),
                f"pool {quoted(pool.name)} has no limits, so it launches nothing; set limits, such as 'gpus'",
                "TR-9",
            )


def cpu_limit_is_whole_nodes(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        limits, requirements = pool.model.spec.limits, pool.model.spec.requirements
        if limits is None or limits.cpu is None:
            continue
        if partial := traps.partial_node_limit(limits.cpu, matching_types(documents.catalog, requirements)):
            yield pool.warning(("limits", "cpu"), partial.message, "TR-18")


def prepaid_nodes_stay(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        blocks = any(source.type == "block" for source in pool.model.spec.sources)
        if blocks and pool.model.spec.disruption.consolidate_blocks:
            yield pool.warning(
                ("disruption", "consolidateBlocks"),
                "a block is paid for whether its nodes run or not: removing nodes saves nothing, and launching them"
                " again takes minutes",
                "TR-5",
            )


def nodes_may_set_their_labels(documents: DocumentSet) -> Iterator[Problem]:
    for pool in documents.all(ComputePool):
        for label in pool.model.spec.labels:
            if not kubelet_may_set(label):
                yield pool.warning(
                    ("labels", label),
                    f"a node may not set the label {quoted(label)} on itself: its kubelet would not start;"
                    " use a prefix of your own",
                    "label",
                )


def budgets_can_be_kept(documents: DocumentSet) -> Iterator[Problem]:
    """`nodes` is a count or a percentage; `schedule` and `duration` describe a window together."""
    for pool in documents.all(ComputePool):
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
                yield pool.error((*where, "duration"), "a window must last at least 1m", "budget")
            elif budget.schedule is not None and (wrong := _wrong_schedule(budget.schedule)) is not None:
                message = (
                    f"{quoted(budget.schedule)} is not a cron line ({wrong}); write five fields in UTC, such as"
                    " '0 9 * * 1-5'"
                )
                yield pool.error((*where, "schedule"), message, "budget")


def _wrong_schedule(schedule: str) -> str | None:
    from cronsim import CronSim, CronSimError  # loaded only where a budget has a schedule

    if len(schedule.split()) != 5:
        return "it does not have five fields"
    try:
        next(CronSim(schedule, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        return str(error).lower()
    except StopIteration:
        return "no date matches it"
    return None


FAMILIES = ("al2023", "bottlerocket")


def images_are_pinned(documents: DocumentSet) -> Iterator[Problem]:
    for node_class in documents.all(NodeClass):
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            if term.alias is not None and (message := traps.floating_image(term.alias)):
                yield node_class.warning(("amiSelectorTerms", index, "alias"), message, "TR-8")


def images_are_known(documents: DocumentSet) -> Iterator[Problem]:
    """A warning only: a rehearsal boots no images."""
    for node_class in documents.all(NodeClass):
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            family = term.alias.partition("@")[0] if term.alias else FAMILIES[0]
            if family not in FAMILIES:
                yield node_class.warning(
                    ("amiSelectorTerms", index, "alias"),
                    f"Tidemill does not know how images of {quoted(family)} join a cluster, so it launches no node from"
                    f" them; write {' or '.join(FAMILIES)}",
                    "ami-family",
                )


def drivers_are_new_enough(documents: DocumentSet) -> Iterator[Problem]:
    """AE-12. Silent where the release notes of the image do not say which driver it has."""
    versions = {platform.model.spec.cluster.version for platform in documents.all(Platform)}
    for node_class in documents.all(NodeClass):
        if not _boots_gpus(documents, node_class.name):
            continue
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            drivers = {driver_of(term.alias, version) for version in versions} if term.alias else set()
            for driver in sorted(each for each in drivers if each is not None and too_old(each)):
                yield node_class.warning(
                    ("amiSelectorTerms", index, "alias"),
                    f"the image {quoted(term.alias)} has NVIDIA driver {driver}; CUDA {CUDA} needs {OLDEST_DRIVER}"
                    " or later: use a newer image",
                    "AE-12",
                )


def _boots_gpus(documents: DocumentSet, node_class: str) -> bool:
    return any(
        kind.accelerator is not None and kind.accelerator.resource == NVIDIA_GPU
        for pool in documents.all(ComputePool)
        if pool.model.spec.node_class_name == node_class
        for kind in matching_types(documents.catalog, pool.model.spec.requirements)
    )


def replicas_of_several_nodes_have_efa(documents: DocumentSet) -> Iterator[Problem]:
    """TR-16, of the engine's pools: a replica of several nodes is given EFA, which its nodes must have."""
    classes = {each.name: each.model.spec for each in documents.all(NodeClass)}
    for platform in documents.all(Platform):
        for index, wanted in enumerate(platform.model.spec.engine_chart.pools):
            pool = documents.pool(wanted.compute_pool) if wanted.nodes_per_replica > 1 else None
            own = classes.get(pool.spec.node_class_name) if pool is not None else None
            if pool is None or own is None or own.efa or own.launch_template is not None:
                continue
            who = f"the engine's pool {quoted(wanted.name)}"
            message = traps.efa_not_attached(who, pool.spec.node_class_name, pool.name)
            yield platform.warning(("engineChart", "pools", index, "nodesPerReplica"), message, "TR-16")


def admitted_pods_have_their_own_nodes(documents: DocumentSet) -> Iterator[Problem]:
    for pool in _karpenter_pools(documents):
        if pool.model.spec.admitted_pods_only:
            yield pool.error(
                ("admittedPodsOnly",),
                "Karpenter launches nodes for pods that are admitted already, and promises no whole gangs: a taint for"
                " admitted pods only would keep nothing free; remove it, or use another provisioner",
                "karpenter",
            )


def karpenter_knows_blocks(documents: DocumentSet) -> Iterator[Problem]:
    """KP-5: an older Karpenter does not fail; it launches on-demand nodes while the paid block stays empty."""
    pools = [pool for pool in _karpenter_pools(documents) if _uses_blocks(pool)]
    for platform in documents.all(Platform) if pools else ():
        own = platform.model.spec.karpenter
        if own is None or not (own.version or own.auto_mode):
            message = (
                f"Karpenter launches nodes for pool {quoted(pools[0].name)}, but its version is not given;"
                " set karpenter.version (blocks need 1.6 or later) or karpenter.autoMode"
            )
            yield platform.warning(("karpenter",), message, "karpenter")
        elif not own.supports(KARPENTER_CAPACITY_BLOCKS):
            message = (
                f"Karpenter {own.version} does not support Capacity Blocks; upgrade it to 1.6 or later,"
                " or use another provisioner"
            )
            yield platform.error(("karpenter", "version"), message, "karpenter")


def ultraservers_are_drained_in_time(documents: DocumentSet) -> Iterator[Problem]:
    for pool in _karpenter_pools(documents):
        kinds = matching_types(documents.catalog, pool.model.spec.requirements)
        if _uses_blocks(pool) and (message := traps.drained_after_ec2(kinds)):
            yield pool.warning(("provisioner",), f"{message}; use 'native' or 'asg'", "TR-14")


def blocks_are_told_apart(documents: DocumentSet) -> Iterator[Problem]:
    """TR-15: before 1.8 Karpenter does not see the second of two blocks of one type and zone under one tag."""
    own = next((each.model.spec.karpenter for each in documents.all(Platform)), None)
    if own is None or own.auto_mode or not own.supports(KARPENTER_CAPACITY_BLOCKS):
        return  # of an older one another rule says that it knows no blocks
    hidden = traps.hides_blocks(own.version)
    if hidden is None:
        return
    for pool in _karpenter_pools(documents):
        by_tag = any(source.type == "block" and not source.ids for source in pool.model.spec.sources)
        if by_tag and _has_overlapping_blocks(documents, pool.name):
            message = (
                f"pool {quoted(pool.name)} will have two blocks of one type at once, and {hidden}: upgrade it; until"
                " then each block is selected by its id"
            )
            yield pool.warning(("sources",), message, "TR-15")


def _has_overlapping_blocks(documents: DocumentSet, pool: str) -> bool:
    """Whether two blocks of one type, planned or in the scenario, exist at the same time."""
    planned = [
        (window.instance_type, window.start - plan.model.spec.overlap, window.end)
        for plan, _, window in documents.windows()
        if plan.model.spec.pool == pool
    ]
    owned = [
        (
            reservation.instance_type,
            scenario.model.spec.start + reservation.start,
            scenario.model.spec.start + reservation.start + reservation.duration,
        )
        for scenario in documents.all(Scenario)
        for reservation in scenario.model.spec.reservations
        if reservation.type == "block" and reservation.pool in ("", pool) and reservation.duration is not None
    ]
    return any(_same_type_at_once(first, second) for first, second in combinations([*planned, *owned], 2))


def _same_type_at_once(first: tuple[str, datetime, datetime], second: tuple[str, datetime, datetime]) -> bool:
    return first[0] == second[0] and first[1] < second[2] and second[1] < first[2]


def _karpenter_pools(documents: DocumentSet) -> list[LocatedDocument[ComputePool]]:
    return [
        pool for pool in documents.all(ComputePool) if pool.model.spec.provisioner is Provisioner.KARPENTER
    ]


def _uses_blocks(pool: LocatedDocument[ComputePool]) -> bool:
    return any(source.type == "block" for source in pool.model.spec.sources)
