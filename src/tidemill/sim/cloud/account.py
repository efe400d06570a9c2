"""A simulated AWS account that outlives the command: `ports.Cloud` and `ports.Clock` over a file.

Several processes may use it at once, as with a real account. Each call runs alone, sees all calls before it, and is
written to the file before it returns. A process that is killed has either made its call or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tidemill.catalog import Catalog
from tidemill.model.capacity import Reservation
from tidemill.model.errors import OutcomeUnknown, SpecError, TidemillError
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.account_faults import strike_account
from tidemill.sim.cloud.account_file import SHARING_ACCOUNT, AccountFile, AccountHistory, RecordedCall
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec.faults import Call as Failing
from tidemill.spec.faults import FaultKind
from tidemill.spec.scenario import OwnedReservation

# The arguments of each kind of call, as the file keeps them. Searches are among them because an offer is sold only to
# a caller that was shown it; searches that led to no purchase are not kept.
_ARGUMENTS: dict[str, TypeAdapter[Any]] = {
    "search_offers": TypeAdapter(tuple[OfferQuery]),
    "purchase": TypeAdapter(tuple[str, Pairs]),
    "search_extensions": TypeAdapter(tuple[ExtensionQuery]),
    "purchase_extension": TypeAdapter(tuple[str, str]),
    "tag_reservation": TypeAdapter(tuple[str, Pairs]),
    "untag_reservation": TypeAdapter(tuple[str, Pairs]),
    "launch": TypeAdapter(tuple[LaunchIntent, Pairs]),
    "terminate": TypeAdapter(tuple[str]),
    "buy_elsewhere": TypeAdapter(tuple[OwnedReservation, str, bool]),
    "fault": TypeAdapter(tuple[FaultKind, int, timedelta, str, Failing]),
    # Faults, as files of an earlier version have them.
    "timeout_after_commit": TypeAdapter(tuple[int, Failing]),
    "lose_requests": TypeAdapter(tuple[int, Failing]),
    "fail_next_payment": TypeAdapter(tuple[int]),
    "show_purchases_late": TypeAdapter(tuple[timedelta]),
}


@dataclass(slots=True)
class _ReplayedAccount:
    """The account as this process knows it, after the first `made` calls of the file."""

    history: AccountHistory
    timeline: Timeline
    cloud: SimCloud
    made: int = 0


class SimAccount:
    def __init__(
        self, path: Path, catalog: Catalog, wall: Callable[[], datetime], *, caller: str = ""
    ) -> None:
        """`caller` is whom STS would name: an ARN, or the short name of somebody with the operator's role."""
        self._file = AccountFile(path)
        self._catalog, self._wall, self._caller = catalog, wall, caller
        self._live: _ReplayedAccount | None = None
        self._unkept: list[RecordedCall] = []  # searches since the last call that changed something

    # --- the clock, and who and where ---------------------------------------------------------------

    def now(self) -> datetime:
        with self._turn() as live:
            return live.timeline.now()

    def identity(self) -> str:
        with self._file.open() as history:
            return self._calling(history)

    def apart(self) -> tuple[Timeline, SimCloud]:
        """The account as it is now, to go on with in process: what is done to it is not written to the file."""
        with self._turn() as live:
            self._live = None
            return live.timeline, live.cloud

    def history(self) -> AccountHistory:
        with self._file.open() as history:
            return history

    def advance(self, by: timedelta) -> datetime:
        """Let time pass; returns the new time."""
        with self._file.open() as history:
            if history.stands_at is None:
                history.ahead += by
            else:
                history.stands_at += by
            self._file.write(history)
        return self.now()

    # --- the port: reading --------------------------------------------------------------------------

    def reservations(self) -> tuple[Reservation, ...]:
        with self._turn() as live:
            return live.cloud.reservations()

    def instances(self) -> tuple[Instance, ...]:
        with self._turn() as live:
            return live.cloud.instances()

    def extensions(self) -> tuple[Extension, ...]:
        with self._turn() as live:
            return live.cloud.extensions()

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        with self._turn() as live:
            offers = live.cloud.search_offers(query)
            self._unkept.append(_call(live, "search_offers", query))
            return offers

    def search_offers_in(self, region: str, query: OfferQuery) -> tuple[Offer, ...]:
        """Of another region, where nothing can be bought: it is not kept."""
        with self._turn() as live:
            return live.cloud.search_offers_in(region, query)

    def search_extensions(self, query: ExtensionQuery) -> tuple[ExtensionOffer, ...]:
        with self._turn() as live:
            offers = live.cloud.search_extensions(query)
            self._unkept.append(_call(live, "search_extensions", query))
            return offers

    def console_output(self, instance_id: str) -> str:
        with self._turn() as live:
            return live.cloud.console_output(instance_id)

    # --- the port: changing -------------------------------------------------------------------------

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        return self._change("purchase", offer_id, tags)  # type: ignore[no-any-return]

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        return self._change("purchase_extension", offer_id, reservation_id)  # type: ignore[no-any-return]

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._change("tag_reservation", reservation_id, tags)

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        self._change("untag_reservation", reservation_id, tags)

    def launch(self, intent: LaunchIntent, tags: Pairs) -> tuple[str, ...]:
        return self._change("launch", intent, tags)  # type: ignore[no-any-return]

    def terminate(self, instance_id: str) -> None:
        self._change("terminate", instance_id)

    # --- what others and bad luck do ----------------------------------------------------------------

    def buy_elsewhere(self, owned: OwnedReservation, *, owner: str = "", shared: bool = False) -> str:
        """Somebody buys a block in the console, with the tag `owner` if given, or in another account that shares it."""
        return self._change("buy_elsewhere", owned, owner, shared)  # type: ignore[no-any-return]

    def strike(
        self,
        kind: FaultKind,
        *,
        count: int = 1,
        duration: timedelta = timedelta(minutes=10),
        target: str = "",
        call: Failing = "purchase",
    ) -> tuple[str, ...]:
        """Arm a fault, or let it strike at once; the ids of the instances it has struck."""
        return self._change("fault", kind, count, duration, target, call)  # type: ignore[no-any-return]

    # --- one call at a time -------------------------------------------------------------------------

    def _change(self, name: str, *given: Any) -> Any:
        with self._turn() as live:
            call = _call(live, name, *given)
            try:
                answer = _make(live, name, *given)
            except OutcomeUnknown:
                self._keep(live, call)  # it may have taken effect
                raise
            self._keep(live, call)
            return answer

    def _keep(self, live: _ReplayedAccount, call: RecordedCall) -> None:
        live.history.calls += [*self._unkept, call]
        self._file.write(live.history)
        self._unkept.clear()
        live.made = len(live.history.calls)

    @contextmanager
    def _turn(self) -> Iterator[_ReplayedAccount]:
        with self._file.open() as history:
            live = self._catch_up(history)
            live.timeline.advance(history.now(self._wall()))
            yield live

    def _catch_up(self, history: AccountHistory) -> _ReplayedAccount:
        """Replay the calls that other processes made since. A call older than the time reached here (a search that
        led to a purchase later) cannot be added afterwards: then all calls are replayed, in the order of time."""
        live = self._live
        fresh = history.calls[live.made :] if live is not None else history.calls
        if live is None or any(call.at < live.timeline.now() for call in fresh):
            live = self._live = self._begin(history)
            fresh = sorted([*history.calls, *self._unkept], key=lambda call: call.at)
        for call in fresh:
            self._replay(live, call)
        live.history, live.made = history, len(history.calls)
        return live

    def _calling(self, history: AccountHistory) -> str:
        if self._caller.startswith("arn:"):
            return self._caller
        return f"arn:aws:iam::{history.account}:user/{self._caller or 'you'}"

    def _begin(self, history: AccountHistory) -> _ReplayedAccount:
        timeline = Timeline(history.start)
        cloud = SimCloud(
            timeline,
            Journal(timeline.now),
            self._catalog,
            seed=history.seed,
            zones=history.zones,
            market=history.market,
            wake=lambda reason: None,
            identity=self._calling(history),
        )
        return _ReplayedAccount(history, timeline, cloud)

    def _replay(self, live: _ReplayedAccount, call: RecordedCall) -> None:
        live.timeline.advance(call.at)
        try:
            _make(live, call.name, *_ARGUMENTS[call.name].validate_python(call.given))
        except OutcomeUnknown:
            pass  # its caller got the same error
        except (TidemillError, KeyError, ValueError) as error:
            raise SpecError(
                f"{self._file.path} cannot be played again ({error}): another version of Tidemill or of its "
                "catalog wrote it; make a new account with `tidemill sim new`"
            ) from error


def _call(live: _ReplayedAccount, name: str, *given: Any) -> RecordedCall:
    return RecordedCall(live.timeline.now(), name, _ARGUMENTS[name].dump_python(given, mode="json"))


def _make(live: _ReplayedAccount, name: str, *given: Any) -> Any:
    cloud = live.cloud
    if name == "buy_elsewhere":
        owned, owner, shared = given
        if cloud.reservation(owned.name) is not None:
            raise SpecError(f"there is a block '{owned.name}' already; give it another name")
        return cloud.add_reservation(owned, owner=owner, shared_by=SHARING_ACCOUNT if shared else "")
    if name == "fault":
        return strike_account(cloud, *given)
    return getattr(cloud, name)(*given)
