"""When a warning is news: another block, requirement or remedy is; another price, number or instant is not."""

from __future__ import annotations

from dataclasses import replace

from tests.decide.builders import NOW, ahead
from tidemill.model.plan import Plan, Warning
from tidemill.model.warning_reasons import (
    MethodUnavailable,
    MissingRequirement,
    PinMustMove,
    ProvisionerMessage,
    RequirementKind,
)
from tidemill.model.world import World
from tidemill.sim.scenario.reason_history import ReasonHistory, topic


def news(*warnings: Warning) -> list[int]:
    """How many of the warnings are new at each tick."""
    history = ReasonHistory()
    return [len(list(history.record(World(NOW), Plan(warnings=(warning,))))) for warning in warnings]


def test_another_figure_in_the_text_of_a_provisioner_is_not_news():
    texts = (f"it could not launch: {count} fewer than asked for" for count in (8, 7, 6))
    assert news(*(Warning("group", ProvisionerMessage(text)) for text in texts)) == [1, 0, 0]


def test_another_missing_requirement_is_news():
    first, second = (MissingRequirement(kind) for kind in list(RequirementKind)[:2])
    assert news(
        *(Warning("chat", MethodUnavailable("rollout", (one,))) for one in (first, second, second))
    ) == [1, 1, 0]


def test_another_instant_is_no_other_topic_and_another_block_is():
    pin = PinMustMove("cr-1", ("cr-1", "cr-2"), "cr-2", ahead("5h"))
    assert topic(replace(pin, ends=ahead("6h"))) == topic(pin)
    assert topic(replace(pin, block="cr-3")) != topic(pin)
