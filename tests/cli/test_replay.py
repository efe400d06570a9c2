"""`tidemill replay`: a recording is proved, explained, compared and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tidemill.cli import main
from tidemill.cli.loading import demo_path, load_scenario
from tidemill.recording.reader import Recording
from tidemill.recording.replay import replay
from tidemill.recording.writer import Recorder
from tidemill.sim.scenario.rehearsal import Rehearsal

pytestmark = pytest.mark.requirement("GB-1")
Asked = Callable[..., str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's first hours, as a controller would keep them."""
    folder = tmp_path_factory.mktemp("recording")
    spec, scenario = load_scenario(["demo"])
    rehearsal, recorder, seen = Rehearsal(spec, scenario, 1), Recorder(folder), 0
    while rehearsal.ticks < 400 and rehearsal.step():
        if rehearsal.ticks > seen and rehearsal.world is not None:
            seen = rehearsal.ticks
            recorder.tick(rehearsal.spec, rehearsal.world, rehearsal.plan, ("due",))
    recorder.close()
    return folder


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    def ask(*arguments: object, code: int = 0) -> str:
        assert main([str(one) for one in arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.out + captured.err

    return ask


def test_it_says_how_many_ticks_and_that_every_plan_is_identical(recorded: Path, asked: Asked):
    count = sum(1 for _ in Recording(recorded).ticks())
    out = asked("replay", recorded)
    assert f"{count} ticks from 2026-" in out
    assert "Every plan is identical, byte for byte." in out
    body = json.loads(asked("replay", recorded, "--json"))
    assert (body["ticks"], body["differ"], body["unread"]) == (count, 0, [])


def test_an_instant_is_shown_with_status_and_plan(recorded: Path, asked: Asked):
    at = [tick.world.now for tick in Recording(recorded).ticks()][200]
    out = asked("replay", recorded, "--at", f"{at:%Y-%m-%dT%H:%M:%SZ}")
    assert f"RECORDED  {at:%Y-%m-%d %H:%M:%S} UTC" in out
    assert "What it decided:" in out
    short = json.loads(asked("replay", recorded, "--at", f"{at:%H:%M:%S}", "--json"))
    assert short["at"] == f"{at:%Y-%m-%dT%H:%M:%SZ}"
    assert short["same"] is True


def test_it_says_why_a_pod_waited_then(recorded: Path, asked: Asked):
    tick, pod = next(
        (replayed.recorded, pod)
        for replayed in replay(Recording(recorded).ticks())
        for pod in replayed.recorded.world.pods
        if replayed.plan and pod.uid in {one.pod for one in replayed.plan.unmet}
    )
    at = f"{tick.world.now:%Y-%m-%dT%H:%M:%SZ}"
    body = json.loads(asked("replay", recorded, "--at", at, "--pod", pod.full_name, "--json"))
    assert body["pod"]["name"] == pod.full_name
    sentence = body["pod"]["reason"]
    assert sentence
    assert sentence in " ".join(asked("replay", recorded, "--at", at, "--pod", pod.full_name).split())
    story = asked("replay", recorded, "--pod", pod.full_name)
    assert "waits: " in story
    assert "running on i-" in story


def test_a_pod_that_is_not_there_and_an_instant_before_the_first_are_said(recorded: Path, asked: Asked):
    assert "no pod or workload 'nobody'" in asked("replay", recorded, "--pod", "nobody", code=2)
    assert "the recording begins" in asked("replay", recorded, "--at", "2020-01-01T00:00:00Z", code=2)
    assert "write 2026-" in asked("replay", recorded, "--at", "teatime", code=2)


def test_other_documents_are_compared_and_the_words_say_what_that_means(
    recorded: Path, asked: Asked, tmp_path: Path
):
    documents = [one for one in yaml.safe_load_all(demo_path().read_text()) if one["kind"] != "Scenario"]
    for one in documents:
        if one["kind"] == "ComputePool":
            one["spec"]["drain"] = {"lead": "3h"}
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump_all(documents))
    out = asked("replay", recorded, "--with", other)
    assert "The recorded world does not react to the other documents" in out
    assert "How it would have gone" in out
    assert "jobs finished" in out
    compared = json.loads(asked("replay", recorded, "--with", other, "--json"))
    assert compared["rehearsals"]["others"]["jobs"]
    body = compared["decisions"]
    assert body["differ"] > 0
    assert any("StartDrain" in said for one in body["first_differences"] for said in one["only_others"])


def test_a_crash_is_exported_as_a_small_file_that_shows_the_traceback(
    recorded: Path, asked: Asked, tmp_path: Path
):
    *_, last = Recording(recorded).ticks()
    folder = tmp_path / "crash"
    recorder = Recorder(folder)
    recorder.tick(last.spec, last.world, None, ("due",), error="Traceback\nRuntimeError: planted")
    recorder.tick(last.spec, last.world, None, ("due",))
    recorder.close()
    out = asked("replay", folder, code=1)
    assert "RuntimeError: planted" in out
    assert "Deciding does not fail now." in out
    file = tmp_path / "one.tick"
    assert "the last tick that failed" in asked("replay", folder, "--export", file)
    assert file.stat().st_size < 200_000
    assert "RuntimeError: planted" in asked("replay", file, code=1)


def test_what_cannot_be_read_is_named_on_stderr(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for path in recorded.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "00000002.tidemill").write_bytes(b"rubbish")
    assert main(["replay", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "Every plan is identical" in captured.out
    assert "not read: 00000002.tidemill" in captured.err


@pytest.mark.requirement("PE-22")
def test_a_rehearsal_begins_with_what_was_recorded(recorded: Path, asked: Asked):
    *_, last = Recording(recorded).ticks()
    body = json.loads(asked("rehearse", "--from", recorded, "--for", "6h", "--json"))
    assert body["start"].startswith(f"{last.world.now:%Y-%m-%dT%H:%M}")
    assert body["simulated_hours"] == 6
    assert body["invariant_violations"] == []


@pytest.mark.requirement("PE-22")
def test_a_beginning_is_named_once_and_its_options_need_one(recorded: Path, asked: Asked):
    assert "--at and --for go with --from" in asked("rehearse", "demo", "--for", "6h", code=2)
    assert "leave one out" in asked("rehearse", "demo", "--from", recorded, "--from-live", code=2)
    assert "--from-live needs the documents" in asked("rehearse", "--from-live", code=2)
    assert "name a SCENARIO" in asked("rehearse", code=2)
