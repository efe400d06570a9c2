"""The end of a block: who terminates its instances, and when.

Forty minutes before the end EKS and Karpenter scale down what they made; thirty minutes before it (sixty for
UltraServers) EC2 terminates every instance that is left, whatever its lifecycle hooks say. Both follow the end that
is paid for at that moment: a timer that was set for an end that has moved since does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import EKS_SCALES_DOWN_BEFORE_END
from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.instances import Instances
from tidemill.sim.cloud.reservations import Reservations, kill_at
from tidemill.sim.cloud.scaling_groups import ScalingGroups
from tidemill.sim.timeline import Journal, Timeline

# The provisioner tag of an instance -> who scales it down before the end.
_SCALES_DOWN: Final = {"managed": "EKS", "karpenter": "Karpenter"}


def block_deadline(block: Reservation, provisioners: Iterable[str]) -> datetime | None:
    """When the first of EC2 and these provisioners ends instances there; None: never (on-demand reservations)."""
    kill, end = kill_at(block), block.end
    if kill is None or end is None:
        return None
    early = any(provisioner in _SCALES_DOWN for provisioner in provisioners)
    return min(kill, end - EKS_SCALES_DOWN_BEFORE_END) if early else kill


class BlockEnd:
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        reservations: Reservations,
        instances: Instances,
        groups: ScalingGroups,
    ) -> None:
        self._timeline = timeline
        self._groups = groups
        self._journal = journal
        self._reservations = reservations
        self._instances = instances
        self.scales_down = dict(_SCALES_DOWN)  # whom it acts for

    def follow(self, reservation: Reservation) -> None:
        """Set the timers for the end as it is now."""
        kill, end = kill_at(reservation), reservation.end
        if kill is None or end is None:
            return
        self._mark(reservation.id, end, end - EKS_SCALES_DOWN_BEFORE_END, self._scale_down)
        self._mark(reservation.id, end, kill, self._reclaim)

    def _mark(
        self, block_id: str, end: datetime, at: datetime, happen: Callable[[Reservation], None]
    ) -> None:
        def if_still_true() -> None:
            block = self._reservations.get(block_id)
            if block is not None and block.end == end and block.state is ReservationState.ACTIVE:
                happen(block)

        self._timeline.at(at, if_still_true)

    def _scale_down(self, block: Reservation) -> None:
        for provisioner, who in self.scales_down.items():
            theirs = [
                history.now.id
                for history in self._instances.on(block.source)
                if history.now.provisioner == provisioner
                and history.now.state is not InstanceState.SHUTTING_DOWN
                and self._groups.of(history.now.id) is None  # those have a scheduled action of their own
            ]
            if theirs:
                self._journal.add(
                    "provisioner-scale-down",
                    block.id,
                    f"{who} ends {len(theirs)} of its instances on {block.id}",
                )
            for instance_id in theirs:
                self._instances.shut_down(
                    instance_id, by=who.lower(), why="40 minutes before the end of the block"
                )

    def _reclaim(self, block: Reservation) -> None:
        assert block.kind is SourceKind.BLOCK
        self._reservations.close(block.id)
        left = [
            history.now.id
            for history in self._instances.on(block.source)
            if history.now.state is not InstanceState.SHUTTING_DOWN
        ]
        if left:
            self._journal.add(
                "block-reclaim", block.id, f"EC2 takes {len(left)} instances of {block.id} back"
            )
        for instance_id in left:
            self._instances.reclaim(instance_id)
