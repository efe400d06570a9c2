"""The leader of two controllers is killed and frozen at random moments under load: `make chaos-leader`, but shorter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.components import Options
from controlplane.start import ControlPlane
from tests.cluster.leader_chaos import make_namespaces, play
from tests.store.postgres import Server

pytestmark = [pytest.mark.requirement("CB-4"), pytest.mark.requirement("CB-10")]


@pytest.fixture
def audited(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, whose API server records who wrote what."""
    folder = tmp_path_factory.mktemp("audited")
    try:
        with ControlPlane(folder, Options(audit=True)) as plane:
            yield plane
    finally:
        shutil.rmtree(folder / "etcd", ignore_errors=True)


def test_a_leader_that_is_killed_or_frozen_does_no_harm(
    audited: ControlPlane, postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    outcome = play(
        audited,
        tmp_path,
        postgres.new_database(),
        make_namespaces(audited, "chaos"),
        seed=13,
        kills=6,
        tell=print,
    )
    assert outcome.faults == [], capsys.readouterr().out
    told = outcome.judgement
    assert len(outcome.kills) == 6
    assert told.epochs >= 8  # the first term, and one after each kill and each freeze
    # It was worth something: nodes were launched, blocks bought with and without a person, and pods drained.
    assert told.instances > 8
    assert 0 < told.approved < told.blocks
    assert told.drained >= 1
