"""NodePools and node classes: Karpenter's own, and those of EKS Auto Mode."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.platform.lint.edits import added, overwritten
from tidemill.platform.lint.finding import Edit, Finding
from tidemill.platform.lint.inventory import TEMPLATE, Inventory, NodePool
from tidemill.spec import traps
from tidemill.spec.located_yaml import Path
from tidemill.spec.names import DO_NOT_DISRUPT
from tidemill.spec.problem import quoted
from tidemill.spec.units import format_duration, parse_cpu

SELECTOR = ("spec", "capacityReservationSelectorTerms")
RESERVATION_IDS = ("karpenter.k8s.aws/capacity-reservation-id", "eks.amazonaws.com/capacity-reservation-id")


def reservations_are_selected_by_tags(files: Inventory) -> Iterator[Finding]:
    """TR-3."""
    for node_class in files.node_classes:
        for index, term in enumerate(node_class.items(*SELECTOR)):
            if isinstance(term, dict) and term.get("id"):
                message = (
                    f"{node_class.kind} {quoted(node_class.name)} takes the reservation {term['id']} only: when it"
                    " ends, its pools have no capacity until someone edits this"
                )
                yield node_class.finding("TR-3", (*SELECTOR, index, "id"), message)
    for pool in files.node_pools:
        for one in pool.requirements:
            if one.key in RESERVATION_IDS and one.operator == "In":
                message = (
                    f"NodePool {quoted(pool.manifest.name)} takes {', '.join(one.values) or 'no reservation'} only:"
                    " when it ends, the pool launches nothing until someone edits this"
                )
                yield pool.manifest.finding("TR-3", (*TEMPLATE, "requirements", one.index), message)


def block_nodes_are_drained_in_time(files: Inventory) -> Iterator[Finding]:
    """TR-4. Without such a pod among the files too: one that is created later would hold the drain back as well."""
    where: Path = (*TEMPLATE, "terminationGracePeriod")
    blockers = _drain_blockers(files)
    for pool in _block_pools(files):
        message = traps.drain_outlasts_block(pool.manifest.text(*where))
        if message is not None:
            yield pool.manifest.finding(
                "TR-4",
                where,
                f"NodePool {quoted(pool.manifest.name)}: {message}",
                edits=_set(pool, where, format_duration(traps.LONGEST_GRACE)),
                elsewhere=blockers,
            )


def _drain_blockers(files: Inventory) -> tuple[str, ...]:
    """Pods that hold a drain back: do-not-disrupt, and budgets that allow no eviction."""
    found = [
        pod.owner.place(*pod.path[:-1], "metadata", "annotations", DO_NOT_DISRUPT)
        for pod in files.pods
        if pod.owner.text(*pod.path[:-1], "metadata", "annotations", DO_NOT_DISRUPT) in ("true", "True")
    ]
    found += [
        each.place("spec", "maxUnavailable")
        for each in files.kubernetes
        if each.kind == "PodDisruptionBudget" and each.text("spec", "maxUnavailable") in ("0", "0%")
    ]
    return tuple(found)


def block_nodes_stay(files: Inventory) -> Iterator[Finding]:
    """TR-5."""
    where: Path = ("spec", "disruption", "consolidateAfter")
    for pool in _block_pools(files):
        message = traps.consolidates_prepaid(pool.manifest.text(*where))
        if message is not None:
            yield pool.manifest.finding(
                "TR-5",
                where,
                f"NodePool {quoted(pool.manifest.name)} {message}",
                edits=_set(pool, where, "Never"),
            )


def _block_pools(files: Inventory) -> list[NodePool]:
    return [pool for pool in files.node_pools if pool.on_blocks]


def _set(pool: NodePool, path: Path, value: str) -> tuple[Edit, ...]:
    """Only where it means blocks alone: nodes by the hour may be wanted otherwise."""
    if not pool.reserved_only:
        return ()
    if pool.manifest.get(*path) is not None:
        return overwritten(pool.manifest, path, value)
    return added(pool.manifest, path[:-1], str(path[-1]), value)


def images_are_pinned(files: Inventory) -> Iterator[Finding]:
    """TR-8. Auto Mode chooses its image itself."""
    for node_class in files.node_classes:
        for index, term in enumerate(node_class.items("spec", "amiSelectorTerms")):
            alias = term.get("alias") if isinstance(term, dict) else None
            if isinstance(alias, str) and (message := traps.floating_image(alias)):
                yield node_class.finding("TR-8", ("spec", "amiSelectorTerms", index, "alias"), message)


def pools_have_limits(files: Inventory) -> Iterator[Finding]:
    """TR-9. A static NodePool has a number of nodes already."""
    for pool in files.node_pools:
        if not pool.manifest.mapping("spec", "limits") and pool.manifest.get("spec", "replicas") is None:
            message = f"NodePool {quoted(pool.manifest.name)} has no limits: it launches as many nodes as pods ask for"
            yield pool.manifest.finding("TR-9", ("spec",), message)


def cpu_limits_are_whole_nodes(files: Inventory) -> Iterator[Finding]:
    """TR-18. The multiple below allows exactly the same nodes, so writing it is safe."""
    for pool in files.node_pools:
        written = pool.manifest.text("spec", "limits", "cpu")
        try:
            partial = traps.partial_node_limit(parse_cpu(written), pool.types) if written else None
        except ValueError:
            continue  # no quantity: the API server refuses it
        if partial is not None:
            where: Path = ("spec", "limits", "cpu")
            below = partial.vcpus_below
            yield pool.manifest.finding(
                "TR-18",
                where,
                f"NodePool {quoted(pool.manifest.name)}: {partial.message}",
                edits=overwritten(pool.manifest, where, str(below)) if below else (),
            )


def ultraservers_are_drained_in_time(files: Inventory) -> Iterator[Finding]:
    """TR-14."""
    for pool in _block_pools(files):
        if message := traps.drained_after_ec2(pool.types):
            where: Path = (*TEMPLATE, "requirements")
            yield pool.manifest.finding("TR-14", where, f"NodePool {quoted(pool.manifest.name)}: {message}")


def blocks_are_told_apart(files: Inventory) -> Iterator[Finding]:
    """TR-15."""
    old = [
        (hidden, place)
        for version, place in files.karpenter_versions
        if (hidden := traps.hides_blocks(version))
    ]
    classes = {id(pool.node_class) for pool in _block_pools(files) if pool.node_class is not None}
    for node_class in files.node_classes:
        if id(node_class) not in classes or node_class.kind != "EC2NodeClass" or not old:
            continue
        for index, term in enumerate(node_class.items(*SELECTOR)):
            if isinstance(term, dict) and term.get("tags"):
                hidden, place = old[0]
                message = (
                    f"EC2NodeClass {quoted(node_class.name)} selects blocks by tags, and {hidden}: of two blocks at a"
                    " hand-over one stays empty"
                )
                yield node_class.finding("TR-15", (*SELECTOR, index, "tags"), message, elsewhere=(place,))
