"""Invariant 12: what is bought can be used by its pool, judged when it is proposed, approved and submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import mutants
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import P5, PreparedScenario, deciding_by, scenario_with, with_pool
from tidemill.model.errors import InvariantViolated
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Requirements, SourceSpec

pytestmark = pytest.mark.requirement("CB-3")

YES = {"verdict": "approve", "by": "finance"}


def buying(
    *plans: Any, decisions: Any = ({"at": "2h", "window": "sprint", **YES},), **pool: Any
) -> PreparedScenario:
    """A pool with these settings, and a plan that wants two p5 tomorrow."""
    on = given.platform(
        budget={"perPurchaseUsd": 20000, "monthlyUsd": 40000},
        approval={"mode": "one"},
        tags={"cost-centre": "ml"},
    )
    return scenario_with(
        given.pool(**pool), on=on, plans=plans or (given.plan(),), duration="5h", decisions=list(decisions)
    )


def two_plans(**pool: Any) -> PreparedScenario:
    """Each fits the limit of two nodes, both together do not."""
    window = {"name": "rival", "from": "2026-11-18T11:30:00Z", "to": "2026-11-19T11:00:00Z", "instanceType": P5,
              "instances": 2}  # fmt: skip
    both = [{"at": "1h", "window": "sprint", **YES}, {"at": "3h", "window": "rival", **YES}]
    rival = given.plan("rival", demand=[window])
    return buying(given.plan(), rival, decisions=both, limits={"nodes": 2}, **pool)


def any_source(spec: Spec) -> Spec:
    return with_pool(spec, sources=(SourceSpec(type="block"),))


def any_zone(spec: Spec) -> Spec:
    return with_pool(spec, requirements=Requirements(instance_types=(P5,)))


IN_ONE_ZONE = {"sources": [{"type": "block", "zones": ["us-east-1b"]}]}
CASES: dict[str, tuple[PreparedScenario, Callable[[Spec], Spec]]] = {
    "in a zone that the source does not take": (buying(**IN_ONE_ZONE), any_source),
    "in a zone that the requirements do not allow": (
        buying(requirements={"instanceTypes": [P5], "zones": ["us-east-1b"]}),
        any_zone,
    ),
    "without the tag that the source asks for": (
        buying(sources=[{"type": "block", "tags": {"team": "vision"}}]),
        any_source,
    ),
    "of a type that the requirements do not allow": (
        buying(requirements={"instanceTypes": ["p4d.24xlarge"]}),
        any_zone,
    ),
    "more than the limit": (buying(limits={"nodes": 1}), mutants.without_limits),
}


def violated_by(scenario: PreparedScenario, believed: Callable[[Spec], Spec]) -> InvariantViolated:
    """An engine that decides and buys by other documents than the ones people wrote."""
    wrong = scenario.prepare(decide=deciding_by(believed))
    wrong.spec = believed(wrong.spec)
    wrong.crash_engine("")
    with pytest.raises(InvariantViolated) as caught:
        wrong.run()
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_an_engine_that_proposes_what_its_pool_cannot_use_trips_number_12(name: str) -> None:
    violation = violated_by(*CASES[name])
    assert violation.number == 12, str(violation)
    assert "proposed" in violation.objects[-1]


def test_an_engine_that_keeps_to_approval_what_no_longer_fits_trips_number_12() -> None:
    violation = violated_by(two_plans(), mutants.without_limits)
    assert violation.number == 12, str(violation)
    assert "approved" in violation.objects[-1]


class UntaggedCloud(SimCloud):
    """Sells blocks without the platform's own tags."""

    def purchase(self, offer_id: str, tags: Any) -> Any:
        return super().purchase(offer_id, tuple(tag for tag in tags if tag[0] != "cost-centre"))


class UnownedCloud(SimCloud):
    """Sells blocks without our owner tag."""

    def purchase(self, offer_id: str, tags: Any) -> Any:
        return super().purchase(offer_id, tuple(tag for tag in tags if tag[0] != names.TAG_OWNER))


class ElsewhereCloud(SimCloud):
    """Answers a search with offers of another zone under the zone that was asked for."""

    def search_offers(self, query: Any) -> Any:
        elsewhere = super().search_offers(replace(query, zones=("us-east-1b",)))
        return tuple(replace(offer, zone="us-east-1a") for offer in elsewhere)


@pytest.mark.parametrize(
    ("cloud", "source", "number"),
    [
        (UntaggedCloud, {"type": "block", "tags": {"cost-centre": "ml"}}, 12),
        (UnownedCloud, {"type": "block", "ids": ["cr-0a1b2c3d4e5f60718"]}, 12),
        # No approval allows another zone, whether its pool could use it or not.
        (ElsewhereCloud, {"type": "block", "zones": ["us-east-1a"]}, 3),
    ],
    ids=["tags", "a pin that it does not inherit", "zone"],
)
def test_an_account_that_delivers_something_else_is_found_at_submit(
    cloud: Any, source: Any, number: int
) -> None:
    zones: dict[str, Any] = {
        "demand": [{**given.plan().spec.demand[0].model_dump(by_alias=True), "zones": ["us-east-1a"]}]
    }
    scenario = buying(given.plan(**zones), sources=[source])
    with pytest.raises(InvariantViolated) as caught:
        scenario.run(cloud=cloud)
    assert caught.value.number == number, str(caught.value)
    assert number != 12 or "submitted" in caught.value.objects[-1]
    assert len(scenario.run().cloud.purchases) == 1


def test_a_pool_that_can_use_what_is_bought_gets_it() -> None:
    """The platform's tags are on every block it buys, and a limit counts what overlaps."""
    usable = buying(limits={"nodes": 2}, sources=[{"type": "block", "tags": {"cost-centre": "ml"}}])
    assert [purchase.offer.count for purchase in usable.run().cloud.purchases] == [2]


@pytest.mark.parametrize(
    "name", [name for name in CASES if name != "in a zone that the source does not take"]
)
def test_the_real_engine_buys_nothing_that_its_pool_cannot_use(name: str) -> None:
    bought = [purchase.offer.zone for purchase in CASES[name][0].run().cloud.purchases]
    # The requirements leave one zone; in the other cases nothing is usable.
    assert bought == (["us-east-1b"] if "requirements do not allow" in name and "zone" in name else [])


def test_the_real_engine_buys_in_the_zone_its_pool_takes() -> None:
    assert [purchase.offer.zone for purchase in buying(**IN_ONE_ZONE).run().cloud.purchases] == ["us-east-1b"]


def test_the_real_engine_buys_one_of_two_that_do_not_fit_together() -> None:
    assert len(two_plans().run().cloud.purchases) == 1
