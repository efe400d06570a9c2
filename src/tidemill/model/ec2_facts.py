"""What AWS says about Capacity Blocks: every number, date rule and name that is AWS's or Karpenter's and not ours.

Pure arithmetic and constants: no prices, no offers, no decisions. The states of a block, and the sets of states that
the code asks for, are in `model.capacity`. Unless a line says otherwise, the source is the EC2 user guide's pages on
Capacity Blocks and the EC2 API reference (2016-11-15), read in 2026-11.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

DAY: Final = timedelta(days=1)

# --- durations ----------------------------------------------------------------------------------------

# Whole days from 1 to 14, then whole weeks up to 26. 180 days, "six months", is not among them. The API takes hours:
# 24 .. 336 by 24, then 504 .. 4368 by 168. An extension comes in the same durations.
LEGAL_DURATIONS: Final[tuple[timedelta, ...]] = tuple(
    timedelta(days=days) for days in (*range(1, 15), *range(21, 183, 7))
)
# Also the most that a block and all its extensions may last together.
LONGEST_BLOCK: Final = LEGAL_DURATIONS[-1]
_LEGAL: Final = frozenset(LEGAL_DURATIONS)


def is_legal_duration(duration: timedelta) -> bool:
    return duration in _LEGAL


def nearest_legal_durations(duration: timedelta) -> tuple[timedelta, ...]:
    """The legal durations around this one: itself when legal, one at either end of the range, else two."""
    if is_legal_duration(duration):
        return (duration,)
    above = bisect_left(LEGAL_DURATIONS, duration)
    return LEGAL_DURATIONS[max(above - 1, 0) : above + 1]


def round_up_duration(duration: timedelta) -> timedelta | None:
    """The shortest legal duration that covers this one; None when EC2 sells nothing that long."""
    above = bisect_left(LEGAL_DURATIONS, duration)
    return LEGAL_DURATIONS[above] if above < len(LEGAL_DURATIONS) else None


# --- sizes --------------------------------------------------------------------------------------------

MAX_INSTANCES_PER_BLOCK: Final = 64
MAX_INSTANCES_ON_A_DATE: Final = 256  # over all blocks and all accounts of an AWS Organization

# UltraServers are bought by type and count, and each one is a block of its own. The type's name is the family (which
# the catalog knows for an instance type) and one of these suffixes. The larger comes first: it is asked for first.
ULTRASERVER_SIZES: Final[Mapping[str, int]] = {"x72": 18, "x36": 9}  # instances in one
SMALLEST_ULTRASERVER: Final = min(ULTRASERVER_SIZES.values())
# Instance families that EC2 sells only in UltraServers. No field of DescribeInstanceTypes says so.
ULTRASERVER_FAMILIES: Final = ("p6e-", "trn2u")


def ultraserver_for(instances: int) -> tuple[str, int] | None:
    """Suffix and size of the largest UltraServer that so many instances fill exactly; None: they fill none."""
    return next((each for each in ULTRASERVER_SIZES.items() if instances % each[1] == 0), None)


def least_sold(instances: int, *, ultraserver: bool) -> int:
    """The smallest number of instances, at least so many, that EC2 sells at once."""
    if not ultraserver:
        return instances
    return -(-instances // SMALLEST_ULTRASERVER) * SMALLEST_ULTRASERVER


# --- when blocks start and end ------------------------------------------------------------------------

# Every block ends at 11:30 UTC. One that starts on a later day starts then too; one that starts "now" starts at any
# minute, and is offered a little shorter or longer than asked, so that its end is on the grid.
_GRID_HOUR, _GRID_MINUTE = 11, 30
EARLIEST_START: Final = timedelta(minutes=30)  # about so long after now
FARTHEST_START: Final = timedelta(weeks=8)


def is_on_grid(instant: datetime) -> bool:
    return instant == grid_at_or_before(instant)


def grid_at_or_before(instant: datetime) -> datetime:
    same_day = instant.replace(hour=_GRID_HOUR, minute=_GRID_MINUTE, second=0, microsecond=0)
    return same_day if same_day <= instant else same_day - DAY


def grid_at_or_after(instant: datetime) -> datetime:
    before = grid_at_or_before(instant)
    return before if before == instant else before + DAY


def nearest_on_grid(instant: datetime) -> datetime:
    """The grid instant closest to this one; the later of two equally close."""
    before = grid_at_or_before(instant)
    return before if instant - before < before + DAY - instant else grid_at_or_after(instant)


# DescribeCapacityBlockOfferings answers with at most so many offers, the cheapest first.
MAX_OFFERS: Final = 6

# --- payment ------------------------------------------------------------------------------------------

# A purchase that is not paid by the earlier of these becomes payment-failed.
PAID_BEFORE_START: Final = timedelta(minutes=5)
PAID_AFTER_PURCHASE: Final = timedelta(hours=12)

# --- extensions ---------------------------------------------------------------------------------------

# An extension may be bought from 56 days to 1 hour before the end of a block that is scheduled or active and has no
# other extension whose payment is pending. `LONGEST_BLOCK` bounds the total.
EXTENSION_OPENS_BEFORE_END: Final = timedelta(days=56)
EXTENSION_CLOSES_BEFORE_END: Final = timedelta(hours=1)
# It becomes payment-failed when it is not paid by then, or `PAID_AFTER_PURCHASE` after the purchase. The end of the
# block moves only when it is paid.
EXTENSION_PAID_BEFORE_END: Final = timedelta(minutes=35)

# --- the end of a block -------------------------------------------------------------------------------

# EC2 starts to terminate the instances so long before the end, lifecycle hooks or not.
TERMINATES_BEFORE_END: Final = timedelta(minutes=30)
ULTRASERVER_TERMINATES_BEFORE_END: Final = timedelta(minutes=60)
# The EventBridge warning comes ten minutes earlier: 40 minutes before the end, UltraServers 70. (One page of AWS's has
# 40 for UltraServers too, which is after EC2 started: nothing may depend on the warning.)
WARNING_BEFORE_TERMINATION: Final = timedelta(minutes=10)
# EKS scales a managed node group to 0, by a scheduled action of this name. It is EKS's: never edit or delete it.
# Source: EKS user guide, managed node groups on Capacity Blocks, 2026-11.
EKS_SCALES_DOWN_BEFORE_END: Final = timedelta(minutes=40)
EKS_SCALE_DOWN_ACTION: Final = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
# Karpenter deletes the NodeClaims on a block, of UltraServers too (for those it is too late). Source: Karpenter's
# documentation and code (blocks are supported from 1.6 on), 2026-11.
KARPENTER_DRAINS_BEFORE_END: Final = timedelta(minutes=40)


# --- instances ----------------------------------------------------------------------------------------

# A spot instance ends so long after its interruption was announced. Source: EC2 user guide, 2026-11.
SPOT_NOTICE: Final = timedelta(minutes=2)
# Auto Scaling lets no instance wait longer in a lifecycle hook, whatever its heartbeat (or 100 heartbeats, if that is
# less). Source: Auto Scaling user guide, 2026-11.
LONGEST_HOOK_WAIT: Final = timedelta(hours=48)


def terminates_before_end(*, ultraserver: bool) -> timedelta:
    return ULTRASERVER_TERMINATES_BEFORE_END if ultraserver else TERMINATES_BEFORE_END


# EC2's own tag on a Capacity Block: how many instances were bought. Before the start the record itself shows none
# (documentation of DescribeCapacityReservations, 2026-11).
TAG_BOUGHT_COUNT: Final = "aws:ec2capacityreservation:incrementalRequestedQuantity"
