"""`tidemill handover` as text."""

from __future__ import annotations

import pytest

from tests.decide.builders import NOW
from tidemill.render.display_names import DisplayNames
from tidemill.render.handover_text import hand_over_text
from tidemill.report.handover import HandOverReport, ServiceMove


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("Deployment/chat", "Deployment/chat in serving, pool p5: moves"),
        ("Deployment/serving/chat", "Deployment/serving/chat, pool p5: moves"),
    ],
)
def test_the_namespace_of_a_service_is_said_once(service: str, said: str):
    move = ServiceMove(
        service, "serving", "p5", "evict", "evict", (), replicas=2, leaving=2, minimum=0, boot_s=60,
        boot_basis="default", load_s=60, load_basis="default", needed_overlap_s=120, overlap_s=None,
        bridged=False, short=False, short_from=None, short_s=None, steps=(), ways=(),
    )  # fmt: skip
    report = HandOverReport(NOW, "cr-1", "cr-2", NOW, NOW, (move,), ())
    assert said in hand_over_text(report, DisplayNames({})).splitlines()
