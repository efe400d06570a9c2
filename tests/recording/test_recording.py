"""The flight recorder: what was seen is read back as it was, and decided again it is the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tidemill.model.errors import SpecError
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.recording.reader import RecordedTick, read
from tidemill.recording.replay import Agreement, replay
from tidemill.recording.world_codec import WorldDecoder, WorldEncoder, decode, encode
from tidemill.recording.writer import Recorder, segments
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Limits
from tidemill.spec.read import load

pytestmark = pytest.mark.requirement("GB-1")
EXAMPLES = Path(__file__).parents[2] / "examples"

SEGMENT = 30_000  # documents and catalog, and some dozens of ticks
Seen = tuple[Spec, World, Plan]


def ticks(example: str, most: int = 100_000) -> Iterator[Seen]:
    loaded = load([EXAMPLES / f"{example}.yaml"])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), seed=1)
    seen = 0
    while seen < most and rehearsal.step():
        if rehearsal.ticks > seen and rehearsal.world is not None:
            seen = rehearsal.ticks
            yield rehearsal.spec, rehearsal.world, rehearsal.plan


@pytest.fixture(scope="module")
def a_block() -> list[Seen]:
    return list(ticks("first-block"))


def record(folder: Path, seen: list[Seen], *, limit: int = 10**9, segment: int = 10**7) -> None:
    recorder = Recorder(folder, limit=limit, segment=segment, now_s=count().__next__)  # each tick is flushed
    for spec, world, plan in seen:
        recorder.tick(spec, world, plan, ("due",))
    recorder.close()


@pytest.mark.parametrize("example", ["first-block", "handover", "mixed-sources", "karpenter"])
def test_a_world_is_read_back_as_it_was(example: str):
    """Every field, the index of pods by node too; what did not change is one object in both worlds."""
    encoder, decoder, last = WorldEncoder(), WorldDecoder(), None
    for _, world, _ in ticks(example, most=400):
        read_back = decoder.world(decode(encode(encoder.frame(world))))
        assert read_back == world
        assert {id(pod) for pods in read_back.pods_by_node.values() for pod in pods} <= {
            id(pod) for pod in read_back.pods
        }
        if last is not None and world.nodes == last.nodes:
            assert read_back.nodes is last.nodes
        last = read_back


def test_a_replay_makes_the_same_plans(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block)
    agreement = Agreement()
    for tick in replay(read(tmp_path)):
        agreement.note(tick)
    assert (agreement.ticks, agreement.differ) == (len(a_block), [])


def test_other_documents_decide_otherwise_on_the_same_worlds(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block)
    spec = a_block[0][0]
    pool = spec.pools["train"]
    smaller = pool.model_copy(update={"spec": pool.spec.model_copy(update={"limits": Limits(nodes=1)})})
    other = replace(spec, pools={"train": smaller})
    differing = [tick for tick in replay(read(tmp_path), other) if not tick.same]
    assert differing
    assert len(differing) < len(a_block)


def test_a_segment_begins_with_everything_so_that_the_oldest_can_go(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block, segment=SEGMENT)
    several = segments(tmp_path)
    assert len(several) > 3
    several[0].unlink()
    worlds = [tick.world for tick in read(tmp_path)]
    assert worlds == [world for _, world, _ in a_block][-len(worlds) :]
    assert len(worlds) < len(a_block)


def test_old_segments_go_when_there_are_too_many_bytes(a_block: list[Seen], tmp_path: Path):
    all_of_it, some = tmp_path / "all", tmp_path / "some"
    record(all_of_it, a_block, segment=SEGMENT)
    limit = sum(path.stat().st_size for path in segments(all_of_it)) // 2
    record(some, a_block, limit=limit, segment=SEGMENT)
    assert sum(path.stat().st_size for path in segments(some)) <= limit
    assert segments(some)[0].name != "00000001.tidemill"
    assert list(read(some))[-1].world == a_block[-1][1]


def test_new_documents_begin_a_segment(a_block: list[Seen], tmp_path: Path):
    (spec, world, plan), other = a_block[0], replace(a_block[0][0])
    record(tmp_path, [(spec, world, plan), (other, world, plan)])
    assert len(segments(tmp_path)) == 2


@pytest.mark.parametrize("lost", [1, 100, 2_000])
def test_a_process_that_was_killed_loses_the_end_and_nothing_else(
    a_block: list[Seen], tmp_path: Path, lost: int
):
    record(tmp_path, a_block)
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    found = [tick.world for tick in read(tmp_path)]
    assert found == [world for _, world, _ in a_block][: len(found)]
    assert len(found) > len(a_block) // 2


def test_reading_can_begin_at_an_instant(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block, segment=SEGMENT)
    since = a_block[len(a_block) // 2][1].now
    found: list[RecordedTick] = list(read(tmp_path, since=since))
    assert found[0].world.now <= since
    assert len(found) < len(a_block)


def test_a_secret_address_is_not_in_a_recording(a_block: list[Seen], tmp_path: Path):
    spec, world, plan = a_block[0]
    told = {"name": "ops", "type": "webhook", "url": "https://hooks.example.com/planted-secret"}
    platform = type(spec.platform).model_validate(
        {"metadata": {"name": "demo"}, "spec": {**spec.platform.spec.model_dump(by_alias=True, exclude_unset=True),
                                                 "notifications": [told]}}
    )  # fmt: skip
    record(tmp_path, [(replace(spec, platform=platform), world, plan)])
    (tick,) = read(tmp_path)
    assert tick.spec.platform.spec.notifications[0].url == "https://left-out-of-the-recording"


def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path):
    with pytest.raises(SpecError, match="no recording there"):
        list(read(tmp_path))
    (tmp_path / "00000001.tidemill").write_bytes(b"not one")
    with pytest.raises(SpecError, match="not a segment of a recording"):
        list(read(tmp_path))
