"""The generator of whole platforms: what it draws, how a fault is named, and how documents shrink around one."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.vopr import judge as judging
from benchmarks.vopr import sweep as sweeping
from benchmarks.vopr.__main__ import main
from benchmarks.vopr.generate import Documents, as_text, generate
from benchmarks.vopr.judge import judge
from benchmarks.vopr.shrink import shrink
from benchmarks.vopr.sweep import Task, sweep
from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.faults import FaultKind
from tidemill.spec.read import load

SEEDS = range(150)


def _drawn(kind: str) -> list[Any]:
    documents = [document for seed in SEEDS for document in generate(seed, 6, mistakes=0)]
    return [document["spec"] for document in documents if document["kind"] == kind]


def test_a_seed_always_gives_the_same_documents() -> None:
    assert as_text(generate(7, 30)) == as_text(generate(7, 30))
    assert as_text(generate(7, 30)) != as_text(generate(8, 30))


def test_documents_are_text_that_reads_back_as_they_were_drawn() -> None:
    for seed in range(20):
        documents = generate(seed, 30)
        assert list(yaml.safe_load_all(as_text(documents))) == documents


def test_every_provisioner_source_and_fault_is_drawn() -> None:
    pools, scenarios = _drawn("ComputePool"), _drawn("Scenario")
    provisioners = {pool.get("provisioner", "native") for pool in pools}
    sources = {source["type"] for pool in pools for source in pool["sources"]}
    faults = {row["fault"] for scenario in scenarios for row in scenario.get("faults", ())}
    assert provisioners >= {str(each) for each in Provisioner}
    assert sources >= {"block", "odcr", "spot", "on-demand"}
    assert faults >= {str(kind) for kind in FaultKind}


def test_most_documents_are_valid_and_the_others_are_refused_with_a_place(tmp_path: Path) -> None:
    refused: Counter[bool] = Counter()
    for seed in range(60):
        file = tmp_path / f"{seed}.yaml"
        file.write_text(as_text(generate(seed, 30)), encoding="utf-8")
        loaded = load([file])
        refused[bool(loaded.errors)] += 1
        assert all(problem.line >= 1 and problem.message for problem in loaded.errors)
    assert 45 <= refused[False] < 60


def test_a_document_is_judged_with_its_reports() -> None:
    verdict = judge(as_text(_small()), seed=1)
    assert not verdict.signature, verdict.story
    assert verdict.digest
    assert verdict.virtual_h == 48
    assert verdict.seen["action Launch"] >= 1
    assert verdict.digest == judge(as_text(_small()), seed=1).digest


def test_what_the_reader_refuses_is_no_fault() -> None:
    documents = _small()
    documents[2]["spec"]["nodeClassName"] = "nobody"
    verdict = judge(as_text(documents), seed=1)
    assert not verdict.signature
    assert verdict.refused == ("reference: no NodeClass is named 'nobody'; valid: gpu",)


def test_an_exception_is_named_by_its_type_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: Rehearsal) -> bool:
        raise KeyError("gone")

    monkeypatch.setattr(Rehearsal, "step", breaks)
    verdict = judge(as_text(_small()), seed=1)
    assert verdict.signature == "KeyError in sim/scenario/rehearsal.py:run"


def test_a_document_that_takes_too_long_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_ends(self: Rehearsal) -> bool:
        return True

    monkeypatch.setattr(Rehearsal, "step", never_ends)
    verdict = judge(as_text(_small()), seed=1, cpu_limit_s=0.2)
    assert verdict.signature == "too slow"
    assert "sim/scenario/rehearsal.py" in verdict.story


def test_a_process_that_dies_is_a_fault_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rehearsal, "run", lambda self: os._exit(3))
    tasks = [Task(seed, 1, 5.0) for seed in (4, 5, 6)]
    verdicts = dict(sweep(tasks, processes=2))
    assert set(verdicts) == set(tasks)
    assert {verdict.signature for verdict in verdicts.values() if not verdict.refused} == {"died"}


def test_two_results_of_one_document_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    written = iter(["once", "twice"])
    monkeypatch.setattr(judging, "_written", lambda outcome: next(written))
    monkeypatch.setattr(sweeping, "generate", lambda seed, days: _small())
    ((_, verdict),) = sweep([Task(40, 2, 30.0)], processes=1)
    assert verdict.signature == "two results"


def test_shrinking_keeps_the_fault_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault here: a pool with a weight, a job with a gang of three or more."""

    def run(self: Rehearsal) -> None:
        weighted = any(pool.spec.weight for pool in self.spec.pools.values())
        if weighted and any(job.nodes >= 3 for job in self.scenario.spec.jobs):
            raise InvariantViolated(8, "", at="", seed=self.seed, objects=("gang-7", "2 of 9 started"))

    monkeypatch.setattr(Rehearsal, "run", run)
    documents = _small()
    documents[2]["spec"] |= {"weight": 60, "labels": {"a": "b"}}
    documents[-1]["spec"]["jobs"] += [
        {"name": f"job-{n}", "nodes": n, "arrivals": {"every": "2h"}, "duration": {"fixed": "3h"}}
        for n in (2, 9)
    ]
    signature = judge(as_text(documents), seed=5).signature
    assert signature == "invariant 8: _ of _ started"
    smallest, seed, _ = shrink(documents, 5, signature, budget_s=120)
    assert seed == 1
    assert [document["kind"] for document in smallest] == ["Platform", "NodeClass", "ComputePool", "Scenario"]
    assert smallest[2]["spec"] == {"nodeClassName": "gpu", "weight": 1}
    (job,) = smallest[-1]["spec"]["jobs"]
    assert (job["name"], set(job)) == ("job-9", {"name", "nodes", "arrivals", "duration"})
    assert 3 <= job["nodes"] <= 4


def test_the_command_prints_a_file_that_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(self: Rehearsal) -> None:
        raise InvariantViolated(1, "", at="", seed=self.seed, objects=("9 of 8",))

    monkeypatch.setattr(Rehearsal, "run", run)
    arguments = ["vopr", "--seed", "4", "--days", "1", "--out", str(tmp_path), "--shrink", "5"]
    monkeypatch.setattr("sys.argv", arguments)
    assert main() == 1
    printed = capsys.readouterr().out
    file = tmp_path / "seed-4.yaml"
    assert f"tidemill rehearse {file} --seed 1" in printed
    assert f"# tidemill rehearse {file} --seed 1" in file.read_text()
    assert judge(file.read_text(), 1).signature == "invariant 1: _ of _"


def _small() -> Documents:
    """One pool on one block, and a job every few hours."""

    def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    pool = {
        "nodeClassName": "gpu",
        "sources": [{"type": "block"}],
        "requirements": {"instanceTypes": ["p5.48xlarge"]},
        "limits": {"nodes": 2},
    }
    scenario = {
        "start": "2026-11-17T07:30:00Z",
        "duration": "2d",
        "reservations": [
            {"name": "a", "instanceType": "p5.48xlarge", "count": 1, "zone": "us-east-1a", "duration": "1d"}
        ],
        "jobs": [{"name": "fit", "gpus": 8, "arrivals": {"every": "6h"}, "duration": {"fixed": "1h"}}],
    }
    platform = {
        "region": "us-east-1",
        "deployment": "mill",
        "cluster": {"name": "ml"},
        "subnets": {"us-east-1a": ["subnet-0a1"]},
    }
    return [
        document("Platform", "mill", platform),
        document("NodeClass", "gpu", {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]}),
        document("ComputePool", "train", pool),
        document("Scenario", "small", scenario),
    ]
