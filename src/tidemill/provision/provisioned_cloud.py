"""An account and its compute as one `Cloud`: the provisioner of a pool says what a launch is.

Everything else of `Account` is passed through. Reservations and intents are remembered only to save calls; what is
missing is read again. The groups are kept in step by `reconciler`, Karpenter's objects by a second one; `Reconcilers`
runs both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal, Protocol

from tidemill.decide.read_models import deadline_of
from tidemill.model.capacity import Reservation, Source
from tidemill.model.errors import PortError, Refused
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.plan import Warning
from tidemill.model.purchases import LaunchIntent
from tidemill.model.world import World
from tidemill.ports import Account, Clock, Ledger
from tidemill.ports.compute import Compute
from tidemill.provision.group_launcher import GroupLauncher
from tidemill.provision.group_reconciler import GroupReconciler, uses_groups
from tidemill.provision.group_sizes import launches_through_groups
from tidemill.provision.group_spec import template_inputs_of
from tidemill.provision.group_state import GroupState
from tidemill.provision.images import Images, PretendImages
from tidemill.provision.native import NativeLauncher
from tidemill.provision.removal_reasons import Ends, ends_in_ledger
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner


class ProvisionedCloud:
    def __init__(
        self,
        account: Account,
        compute: Compute,
        spec: Spec,
        ledger: Ledger | None,
        clock: Clock,
        *,
        images: Images | None = None,
    ) -> None:
        """`ledger`: the open launch intents decide the sizes of groups; `images`: needed where nodes really boot."""
        self._account, self._compute, self._spec = account, compute, spec
        self._ledger, self._clock = ledger, clock
        images = images or PretendImages()
        self._native = NativeLauncher(spec, compute, images, self._ends_at)
        self._blocks: Mapping[str, Reservation] = {}
        self._known_launches: Sequence[LaunchIntent] = ()
        self._state = GroupState(compute, clock, self._launches)
        template_inputs = template_inputs_of(spec, images)
        self.ends = ends_of(ledger)
        self._groups = GroupLauncher(spec, compute, clock, self._state, self._launches, template_inputs)
        self.reconciler = GroupReconciler(
            spec, compute, self._state, self._groups, self._launches, template_inputs, self.ends
        )

    # --- launches -------------------------------------------------------------------------------------

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        match intent.provisioner:
            case Provisioner.NATIVE:
                return self._native.launch(intent, tags)
            case Provisioner.ASG | Provisioner.MANAGED:
                self._groups.launch(intent)
                return ()  # the group launches when it likes
            case provisioner:
                raise Refused(
                    f"pool {intent.pool}: the engine does not launch for provisioner '{provisioner}'"
                )

    def terminate(self, instance_id: str) -> None:
        if not (self._state.may_be_in_a_group(instance_id) and self._groups.terminate(instance_id)):
            self._compute.terminate(instance_id)

    def console_output(self, instance_id: str) -> str:
        return self._compute.console_output(instance_id)

    def _launches(self) -> Sequence[LaunchIntent]:
        """The last known ones while the ledger cannot be read: instances must still be listed."""
        if self._ledger is not None:
            with suppress(PortError):
                self._known_launches = self._ledger.launches()
        return self._known_launches

    def _ends_at(self, source: Source, provisioner: Provisioner) -> datetime | None:
        if not source.id:
            return None
        if source.id not in self._blocks:
            self.reservations()
        block = self._blocks.get(source.id)
        return None if block is None else deadline_of(block, provisioner)

    # --- the account ----------------------------------------------------------------------------------

    def reservations(self) -> Sequence[Reservation]:
        found = self._with_scale_downs(self._account.reservations())
        readable = tuple(reservation for reservation in found if not reservation.unread)
        self._blocks = {reservation.id: reservation for reservation in readable}
        self._state.reservations = readable
        return found

    def _with_scale_downs(self, listed: Sequence[Reservation]) -> Sequence[Reservation]:
        """Groups are read once per tick, after this: an action stands there for hours before it fires. The same objects
        while nothing about them changed."""
        readable = [one for one in listed if not one.unread]
        if not (readable and uses_groups(self._spec)):
            return listed
        try:
            found = self._state.scale_downs(self._spec, readable)
        except PortError:  # the instances are read next, and say so
            return listed
        if not any(found.values()):
            return listed
        return tuple(self._annotated(one, found.get(one.id, ())) for one in listed)

    def _annotated(self, listed: Reservation, scale_downs: tuple[tuple[str, datetime], ...]) -> Reservation:
        if not scale_downs:
            return listed
        fresh = replace(listed, scale_downs=scale_downs)
        known = self._blocks.get(listed.id)
        return known if known == fresh else fresh

    def instances(self) -> Sequence[Instance]:
        listed = self._account.instances()
        if not (
            uses_groups(self._spec)
            or any(launches_through_groups(instance.provisioner) for instance in listed)
        ):
            return listed  # without groups there is no call, and no permission is needed
        self._state.invalidate()
        return self._state.annotate(listed)

    def extensions(self) -> Sequence[Extension]:
        return self._account.extensions()

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]:
        return self._account.search_offers(query)

    def purchase(self, offer_id: str, tags: Pairs) -> Sequence[Reservation]:
        return self._account.purchase(offer_id, tags)

    def search_extensions(self, query: ExtensionQuery) -> Sequence[ExtensionOffer]:
        return self._account.search_extensions(query)

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        return self._account.purchase_extension(offer_id, reservation_id)

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._account.tag_reservation(reservation_id, tags)

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._account.untag_reservation(reservation_id, tags)

    def identity(self) -> str:
        return self._account.identity()


def ends_of(ledger: Ledger | None) -> Ends:
    """The paid ends of reservations by the ledger: the one proof that a block is over once AWS lists it no more."""

    def read() -> Mapping[str, datetime]:
        return {} if ledger is None else ends_in_ledger(ledger.purchases(), ledger.adoptions())

    return read


# --- reconcilers --------------------------------------------------------------------------------------


class PlannedChange(Protocol):
    @property
    def verb(self) -> Literal["create", "change", "remove"]: ...

    @property
    def about(self) -> str: ...

    @property
    def reason(self) -> str: ...


class Reconciler(Protocol):
    def reconcile(self, world: World) -> tuple[Warning, ...]: ...

    @property
    def waits(self) -> bool:
        """A launch waits for something that tells nobody when it is done."""
        ...

    def planned(self, world: World) -> tuple[PlannedChange, ...]:
        """What it would do. Changes nothing."""
        ...


class Reconcilers:
    def __init__(self, *reconcilers: Reconciler) -> None:
        self._reconcilers = reconcilers

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        return tuple(warning for reconciler in self._reconcilers for warning in reconciler.reconcile(world))

    @property
    def waits(self) -> bool:
        return any(reconciler.waits for reconciler in self._reconcilers)

    def planned(self, world: World) -> tuple[PlannedChange, ...]:
        return tuple(change for reconciler in self._reconcilers for change in reconciler.planned(world))
