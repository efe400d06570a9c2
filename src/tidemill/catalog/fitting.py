"""Which instance types hold a pod, how many such pods, and what a pod costs there: from requests, sizes and list
prices.

It knows no labels, taints, other pods or pools: the caller passes the types to consider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.catalog import InstanceType
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.model.resources import Amounts

_NO_PRICE = float("inf")  # in comparisons: more expensive than any price


@dataclass(frozen=True, slots=True)
class Fit:
    """How many such pods fit on a node of a type, and what is left on a full node."""

    type: InstanceType
    pods: int  # at least 1
    left: Amounts  # allocatable, less daemons and these pods

    @property
    def usd_h(self) -> float | None:
        return self.type.on_demand_usd_h

    @property
    def usd_h_per_pod(self) -> float | None:
        """On a node that is full of such pods."""
        return None if self.usd_h is None else self.usd_h / self.pods

    @property
    def stranded(self) -> int:
        """Accelerators that no further such pod can use."""
        accelerator = self.type.accelerator
        return dict(self.left).get(accelerator.resource, 0) if accelerator else 0


def fitting(
    types: Iterable[InstanceType], requests: Amounts, daemons: Amounts = USUAL_DAEMONS
) -> tuple[Fit, ...]:
    """Types that hold at least one such pod: the cheapest on demand first, those without a price last.

    Of equal prices, the type that strands fewer accelerators comes first, then the smaller type.
    """
    fits = (_fit(instance_type, requests, daemons) for instance_type in types)
    return tuple(sorted((fit for fit in fits if fit is not None), key=_rank))


def cheapest(fits: Iterable[Fit]) -> Fit | None:
    """The type to suggest for a single pod; None if no on-demand price is known."""
    return min((fit for fit in fits if fit.usd_h is not None), key=_rank, default=None)


def cheapest_when_full(fits: Iterable[Fit]) -> Fit | None:
    """The type to suggest for many such pods: a large type may be cheaper per pod."""
    priced = [fit for fit in fits if fit.usd_h_per_pod is not None]
    return min(priced, key=lambda fit: (fit.usd_h_per_pod, *_rank(fit)), default=None)


def _fit(instance_type: InstanceType, requests: Amounts, daemons: Amounts) -> Fit | None:
    free = instance_type.free_beside(dict(daemons))
    each = {name: wanted for name, wanted in requests if wanted > 0} | {"pods": 1}
    pods = free.count_fitting(requests)
    if pods < 1:
        return None
    return Fit(instance_type, pods, _left(free, each, pods))


def _left(free: Mapping[str, int], each: Mapping[str, int], pods: int) -> Amounts:
    return tuple(sorted((name, has - pods * each.get(name, 0)) for name, has in free.items()))


def _rank(fit: Fit) -> tuple[float, float, int, int, str]:
    """Types without an on-demand price are ordered by their block price."""
    usd_h, block_usd_h = fit.usd_h, fit.type.block_usd_h
    return (
        _NO_PRICE if usd_h is None else usd_h,
        (_NO_PRICE if block_usd_h is None else block_usd_h) if usd_h is None else 0.0,
        fit.stranded,
        fit.type.vcpus,
        fit.type.name,
    )
