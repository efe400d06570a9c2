"""The flight recorder: what was seen is read back as it was, and decided again it is the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis.strategies import DataObject, data, integers, lists, sampled_from

from tidemill.model.errors import SpecError
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.recording.plan_digest import PlanDigests, digest
from tidemill.recording.reader import RecordedTick, Recording
from tidemill.recording.replay import Agreement, replay
from tidemill.recording.secrets import LEFT_OUT, without_secrets
from tidemill.recording.world_codec import WorldDecoder, WorldEncoder, WorldFrame, splices
from tidemill.recording.writer import FORMAT, Recorder, segments
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Limits
from tidemill.spec.read import load

pytestmark = pytest.mark.requirement("GB-1")
EXAMPLES = Path(__file__).parents[2] / "examples"

SEGMENT = 30_000  # documents and catalog, and some dozens of ticks
Seen = tuple[Spec, World, Plan]
encode = msgspec.msgpack.Encoder(order="deterministic").encode


def read(folder: Path, *, since: datetime | None = None) -> Iterator[RecordedTick]:
    return Recording(folder).ticks(since=since)


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
        read_back = decoder.world(msgspec.msgpack.decode(encode(encoder.frame(world)), type=WorldFrame))
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
    assert (agreement.ticks, agreement.differ) == (len(a_block), 0)


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


@settings(max_examples=300, deadline=None)
@given(data())
def test_splices_turn_one_list_into_the_other(draw: DataObject):
    members = [[number] for number in range(draw.draw(integers(0, 300)))]
    old = tuple(draw.draw(lists(sampled_from(members), unique_by=id)) if members else ())
    new = tuple(draw.draw(lists(sampled_from(members), unique_by=id)) if members else ())
    built, done = [], 0
    for at, removed, start, stop in splices(old, new):
        built += [*old[done:at], *new[start:stop]]
        done = at + removed
    assert [id(one) for one in (*built, *old[done:])] == [id(one) for one in new]


def test_the_digest_of_a_plan_does_not_depend_on_what_came_before(a_block: list[Seen]):
    in_turn = PlanDigests()
    for _, _, plan in a_block:
        assert in_turn.of(plan)[0] == digest(plan)


def test_plans_that_say_something_else_have_another_digest(a_block: list[Seen]):
    plan = next(plan for _, _, plan in a_block if len(plan.unmet) > 1)
    turned = replace(plan, unmet=tuple(reversed(plan.unmet)))
    fewer = replace(plan, unmet=plan.unmet[1:])
    later = replace(plan, wake_at=None)
    assert len({digest(one) for one in (plan, turned, fewer, later)}) == 4


# --- damage -------------------------------------------------------------------------------------------


def test_what_is_damaged_is_named_and_the_rest_is_read(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block, segment=SEGMENT)
    files = segments(tmp_path)
    hurt = files[1].read_bytes()
    middle = len(hurt) - 200  # behind the documents and the catalog, which are most of it
    files[1].write_bytes(hurt[:middle] + bytes(64) + hurt[middle + 64 :])
    files[2].write_bytes(b"")
    recording = Recording(tmp_path)
    worlds = [tick.world for tick in recording.ticks()]
    assert [one.file for one in recording.unread] == [files[2].name, files[1].name]
    assert "empty" in recording.unread[0].why
    assert "damaged" in recording.unread[1].why
    everything = [world for _, world, _ in a_block]
    assert worlds[-1] == everything[-1]
    assert 0 < len(worlds) < len(everything)
    assert all(world in everything for world in worlds[:: len(worlds) // 20])


def test_another_format_is_refused_with_the_version_that_reads_it(a_block: list[Seen], tmp_path: Path):
    record(tmp_path, a_block[:1])
    (path,) = segments(tmp_path)
    message = encode({"format": FORMAT + 1, "version": "9.9"})
    head = len(message).to_bytes(4, "big") + crc32(message).to_bytes(4, "big")
    path.write_bytes(zstandard.compress(head + message))
    with pytest.raises(SpecError, match=f"format {FORMAT + 1} of Tidemill 9.9"):
        list(read(tmp_path))


# --- secrets ------------------------------------------------------------------------------------------

PLANTED = "s3cr3t-P1anted-0042"


def raw(folder: Path) -> bytes:
    """Everything that was written, without its compression."""
    found = b""
    for path in segments(folder):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            found += stream.read()
    return found


def test_no_secret_is_in_the_bytes_of_a_recording(
    a_block: list[Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Planted in the environment, the documents, tags, notes, what kubelets say, and errors."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PLANTED)
    monkeypatch.setenv("TIDEMILL_LEDGER", f"postgresql://tidemill:{PLANTED}@db/ledger")
    spec, world, plan = next(seen for seen in a_block if seen[1].pods and seen[1].reservations)
    told = {"name": "ops", "type": "webhook", "url": f"https://hooks.example.com/{PLANTED}"}
    platform = type(spec.platform).model_validate(
        {"metadata": {"name": "demo"}, "spec": {**spec.platform.spec.model_dump(by_alias=True, exclude_unset=True),
                                                 "notifications": [told]}}
    )  # fmt: skip
    classes = {
        name: one.model_copy(
            update={"spec": one.spec.model_copy(update={"user_data": f"export P={PLANTED}"})}
        )
        for name, one in spec.node_classes.items()
    }
    spec = replace(spec, platform=platform, node_classes=classes)
    pod = replace(world.pods[0], message=f"pull failed: https://bot:{PLANTED}@registry.example.com/v2")
    tagged = replace(world.reservations[0], tags=(("note", f"password={PLANTED}"),))
    world = replace(world, pods=(pod, *world.pods[1:]), reservations=(tagged, *world.reservations[1:]))
    recorder = Recorder(tmp_path)
    error = f"OperationalError: postgresql://tidemill:{PLANTED}@db/ledger is away"
    recorder.tick(spec, world, plan, ("due",), (f"Launch: Authorization: Bearer {PLANTED}",), error)
    again = replace(world, pods=(replace(pod, message=f"token: {PLANTED}"), *world.pods[1:]))
    recorder.tick(spec, again, plan)
    recorder.close()
    written = raw(tmp_path)
    assert PLANTED.encode() not in written
    assert LEFT_OUT.encode() in written
    assert len(list(read(tmp_path))) == 2


@pytest.mark.parametrize(
    "harmless",
    ["cr-0123456789abcdef0", "arn:aws:sts::123456789012:assumed-role/tidemill/i-0abc",
     "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
     "https://kubernetes.default.svc:443/api", "key nvidia.com/gpu:NoSchedule"],
)  # fmt: skip
def test_what_is_no_secret_is_kept(harmless: str):
    assert without_secrets(harmless) == harmless


# --- crashes ------------------------------------------------------------------------------------------


def test_a_tick_that_failed_is_kept_with_its_world_and_traceback(a_block: list[Seen], tmp_path: Path):
    spec, world, plan = a_block[5]
    recorder = Recorder(tmp_path)
    recorder.tick(spec, world, plan)
    recorder.tick(spec, world, None, error="Traceback: AttributeError")
    recorder.close()
    agreement = Agreement()
    for tick in replay(read(tmp_path)):
        agreement.note(tick)
    assert [tick.recorded.error for tick in agreement.failed] == ["Traceback: AttributeError"]
    assert agreement.differ == 1  # no plan then, one now
