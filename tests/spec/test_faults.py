"""The table of faults: one spelling, and the old ones still read."""

from __future__ import annotations

import pytest

from tidemill.spec.faults import (
    ACCOUNT_FAULTS,
    CALL_FAULTS,
    CLUSTER_FAULTS,
    ENGINE_FAULTS,
    CallFault,
    FaultKind,
)
from tidemill.spec.scenario import Fault, RandomFaults

PARAMETERS = {"count", "duration", "target", "call", "step", "action", "code", "message", "status"}


def test_every_fault_strikes_the_account_the_cluster_or_the_engine() -> None:
    assert {*ACCOUNT_FAULTS, *CLUSTER_FAULTS, *ENGINE_FAULTS} == set(FaultKind)
    assert len(ACCOUNT_FAULTS) + len(CLUSTER_FAULTS) + len(ENGINE_FAULTS) == len(FaultKind)
    assert set(ACCOUNT_FAULTS) >= CALL_FAULTS


@pytest.mark.parametrize("kind", [*FaultKind, *CallFault])
def test_a_fault_says_what_goes_wrong_and_takes_known_parameters(kind: FaultKind | CallFault) -> None:
    assert kind.meaning
    assert set(kind.parameters) <= PARAMETERS
    if isinstance(kind, FaultKind):
        assert set(kind.parameters) <= set(Fault.model_fields)


def test_no_name_means_two_faults() -> None:
    names = [name for kind in (*FaultKind, *CallFault) for name in (str(kind), *kind.old_names)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind.old_names])
def test_a_scenario_with_an_old_name_means_the_same_fault(kind: FaultKind) -> None:
    for old in kind.old_names:
        assert Fault.model_validate({"at": "1h", "fault": old}).fault is kind
        assert RandomFaults.model_validate({"count": 1, "kinds": [old]}).kinds == (kind,)
