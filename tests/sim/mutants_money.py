"""Engines and accounts that spend wrongly on purpose, each in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.sim.scenario_builder import PreparedScenario
from tidemill.model.capacity import Reservation
from tidemill.model.errors import NoCapacity, Refused
from tidemill.model.labels import Pairs
from tidemill.model.offers import Extension, ExtensionQuery, Offer, OfferQuery
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec

_DAY = timedelta(days=1)
_SETTLED = timedelta(minutes=10)

# --- by other rules, as after a wrong deployment ------------------------------------------------------


def with_approval(**changes: Any) -> Callable[[Spec], Spec]:
    return lambda spec: _with_platform(spec, approval=_changed(spec.platform.spec.approval, changes))


def with_budget(**changes: Any) -> Callable[[Spec], Spec]:
    return lambda spec: _with_platform(spec, budget=_changed(spec.platform.spec.budget, changes))


def without_plan_budget(spec: Spec) -> Spec:
    plans = {
        name: plan.model_copy(update={"spec": _changed(plan.spec, {"budget": None})})
        for name, plan in spec.plans.items()
    }
    return replace(spec, plans=plans)


def believing(prepared: PreparedScenario, believed: Callable[[Spec], Spec], **how: Any) -> Rehearsal:
    """An engine that decides and buys by other documents than those people wrote."""
    wrong = prepared.prepare(**how)
    wrong.spec = believed(wrong.spec)
    wrong.crash_engine("")  # the next one starts with them
    return wrong


def _changed(model: Any, changes: dict[str, Any]) -> Any:
    return model.model_copy(update=changes)


def _with_platform(spec: Spec, **changes: Any) -> Spec:
    return replace(
        spec, platform=spec.platform.model_copy(update={"spec": _changed(spec.platform.spec, changes)})
    )


# --- calls that are not the one that was meant --------------------------------------------------------


class BuysOnceMoreUntagged(SimCloud):
    """The call is made again by something that knows no tags."""

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        bought = super().purchase(offer_id, tags)
        super().purchase(offer_id, ())
        return bought


class BuysElsewhere(SimCloud):
    """Whatever zone was asked for, the block is bought in another one."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._asked: dict[str, OfferQuery] = {}

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        found = super().search_offers(query)
        self._asked.update((offer.id, query) for offer in found)
        return found

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        query = self._asked[offer_id]
        others = super().search_offers(replace(query, zones=()))
        elsewhere = [offer for offer in others if query.zones and offer.zone not in query.zones]
        return super().purchase(elsewhere[0].id if elsewhere else offer_id, tags)


class BuysFewer(SimCloud):
    """One instance less than was approved."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._asked: dict[str, OfferQuery] = {}

    def search_offers(self, query: OfferQuery) -> tuple[Offer, ...]:
        found = super().search_offers(query)
        self._asked.update((offer.id, query) for offer in found)
        return found

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        query = self._asked[offer_id]
        (other, *_) = super().search_offers(replace(query, count=query.count - 1))
        return super().purchase(other.id, tags)


class ExtendsUnasked(SimCloud):
    """Whenever it looks what more time would cost, it buys that."""

    def search_extensions(self, query: ExtensionQuery) -> tuple[Any, ...]:
        offers = super().search_extensions(query)
        for offer in offers:
            super().purchase_extension(offer.id, offer.reservation_id)
        return offers


class ExtendsTwice(SimCloud):
    """An SDK with its retries left on: as soon as EC2 lets it, the same block is extended once more."""

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        made = super().purchase_extension(offer_id, reservation_id)
        self._timeline.after(_SETTLED, lambda: self._again(reservation_id, made))
        return made

    def _again(self, reservation_id: str, made: Extension) -> None:
        query = ExtensionQuery(reservation_id, _DAY)
        try:
            for offer in super().search_extensions(query):
                super().purchase_extension(offer.id, reservation_id)
        except (Refused, NoCapacity):
            return
