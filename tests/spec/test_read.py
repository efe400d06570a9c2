"""Reading files: every problem of every file in one run, and never an exception."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, joined, messages, plan, pool, scenario, window
from tidemill.catalog import Catalog
from tidemill.model.errors import SpecError
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.read import load


def test_valid_documents_give_a_spec_and_a_scenario(read: Reader) -> None:
    loaded = read(
        joined(PLATFORM, NODE_CLASS, pool("sources: [{type: block}]")), joined(plan(window()), scenario())
    )
    assert messages(loaded) == []
    spec = loaded.checked_spec()
    assert list(spec.pools) == ["training"]
    assert spec.plans["november"].spec.demand[0].start == datetime(2026, 11, 16, 11, 30, tzinfo=UTC)
    assert loaded.checked_scenario().spec.duration == timedelta(days=30)


def test_an_instant_keeps_its_zone(read: Reader) -> None:
    loaded = read(
        joined(NODE_CLASS, pool("sources: [{type: block}]"), plan(window(start="2026-11-16T11:30:00+02:00")))
    )
    (model,) = (each.model for each in loaded.documents if each.name == "november")
    assert model.spec.demand[0].start == datetime(2026, 11, 16, 9, 30, tzinfo=UTC)  # type: ignore[attr-defined]


def test_an_unknown_key_is_reported_with_its_position_and_the_nearest_name(read: Reader) -> None:
    loaded = read("kind: ComputePool\nmetadata: {name: x}\nspec:\n  nodeClassName: gpu\n  requirements:\n"
                  "    instanceFamilys: [p5]\n", NODE_CLASS)  # fmt: skip
    assert (
        "a.yaml:6:5: unknown key 'instanceFamilys' in ComputePool.spec.requirements;"
        " did you mean 'instanceFamilies'?"
    ) in messages(loaded)


def test_an_unknown_key_without_a_near_name_lists_the_valid_keys(read: Reader) -> None:
    loaded = read(joined(NODE_CLASS, pool("drain: {qqq: 1}")))
    assert messages(loaded) == [
        "a.yaml:12:11: unknown key 'qqq' in ComputePool.spec.drain; valid: checkpoint, lead"
    ]


def test_the_python_spelling_of_a_key_is_unknown(read: Reader) -> None:
    loaded = read(joined(NODE_CLASS, pool("default_duration: 5m")))
    assert "did you mean 'defaultDuration'?" in messages(loaded)[0]


def test_unknown_keys_inside_lists_and_unions_have_positions(read: Reader) -> None:
    job = "jobs: [{name: j, arrivals: {at: [1h]}, duration: {lognormal: {median: 1h, sigma: 1, maxx: 2h}}}]"
    (only,) = messages(read(scenario(job)))
    assert only.endswith(
        "unknown key 'maxx' in Scenario.spec.jobs[0].duration.lognormal; did you mean 'max'?"
    )


def test_missing_keys_are_reported_at_their_parent(read: Reader) -> None:
    loaded = read("kind: Platform\nmetadata:\n  name: x\nspec:\n  deployment: x\n  cluster: {}\n")
    assert messages(loaded) == [
        "a.yaml:4:1: missing key 'region' in Platform.spec",
        "a.yaml:6:3: missing key 'name' in Platform.spec.cluster",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("limits: {cpu: -1}", "limits.cpu must not be negative"),
        ("limits: {memory: -1Gi}", "limits.memory must not be negative"),
        ("limits: {gpus: -1}", "limits.gpus must not be negative"),
        ("limits: {nodes: 2.5}", "limits.nodes must be a whole number"),
        ("weight: 101", "weight must be at most 100"),
        ("warm: lots", "warm must be true or false, or a whole number"),
        ("labels: {a: 1.30}", "labels.a must be text: put it in quotes, '1.30'"),
        ("labels:", "labels is empty; give it a value or leave the key out"),
        ("taints: nvidia.com/gpu", "taints must be a list"),
        ("drain: 5m", "drain must be a mapping of keys to values"),
        ("drain: {lead: 5}", "drain.lead: 5 has no unit; write a duration such as '5m', '36h' or '14d'"),
        ("drain: {lead: -5m}", "drain.lead must not be negative"),
        ("provisioner: kapenter", "provisioner cannot be 'kapenter'; did you mean 'karpenter'?"),
        ("provisioner: NATIVE", "provisioner cannot be 'NATIVE'; did you mean 'native'?"),
        ("sources: [{type: spt}]", "sources[0].type cannot be 'spt'; did you mean 'spot'?"),
        ("drain: {lead: 99999999999d}", "drain.lead: '99999999999d' is longer than 100 years"),
        (f"limits: {{cpu: '{'9' * 400}'}}", "limits.cpu: the number is too large"),
    ],
)
def test_a_wrong_value_is_reported_in_plain_words(read: Reader, line: str, message: str) -> None:
    text = f"kind: ComputePool\nmetadata: {{name: x}}\nspec:\n  nodeClassName: gpu\n  {line}\n"
    errors = [problem.message for problem in read(text, NODE_CLASS).errors]
    assert errors == [message]


@pytest.mark.parametrize(
    ("name", "words"),
    [("Foo_Bar", "is not a name"), ("x" * 64, "must have at most 63 characters"), ("7", "in quotes")],
)
def test_an_invalid_name_is_reported(read: Reader, name: str, words: str) -> None:
    (problem,) = read(
        f"kind: NodeClass\nmetadata: {{name: {name}}}\nspec: {{amiSelectorTerms: [{{id: ami-1}}]}}"
    ).errors
    assert words in problem.message


def test_an_account_id_without_quotes_is_reported(read: Reader) -> None:
    (only,) = messages(read(PLATFORM + "  accountId: 123456789012\n"))
    assert only == "a.yaml:8:14: accountId must be text: put it in quotes, '123456789012'"


def test_a_window_that_ends_before_it_begins_is_reported(read: Reader) -> None:
    loaded = read(
        joined(NODE_CLASS, pool("sources: [{type: block}]"), plan(window(end="2026-11-10T11:30:00Z")))
    )
    assert [problem.message for problem in loaded.errors] == ["demand[0]: 'to' must be after 'from'"]


def test_an_instant_without_a_zone_says_add_z(read: Reader) -> None:
    text = scenario().replace("00Z", "00")
    assert messages(read(text)) == [
        "a.yaml:4:10: start: '2026-11-16T00:00:00' has no time zone; write '2026-11-16T00:00:00Z' for UTC"
    ]


def test_a_value_with_a_yaml_problem_is_reported_once(read: Reader) -> None:
    (only,) = messages(read(joined(NODE_CLASS, pool("drain: {lead: 12:30}"))))
    assert "base 60" in only


def test_errors_in_one_document_do_not_hide_those_of_another(read: Reader) -> None:
    loaded = read(
        joined("- a list\n", "kind: Plattform\n", pool("limit: 3")),
        "a: [\n",
        joined(NODE_CLASS, pool(name="other", limits="{gpus: -8}")),
    )
    assert [line.split(" ")[0] for line in messages(loaded)] == [
        "a.yaml:1:1:", "a.yaml:3:7:", "a.yaml:11:3:", "b.yaml:2:1:", "c.yaml:11:18:"
    ]  # fmt: skip


def test_a_wrong_key_does_not_hide_a_wrong_reference_in_the_same_document(read: Reader) -> None:
    loaded = read(pool("weigth: 3").replace("nodeClassName: gpu", "nodeClassName: gpus"), NODE_CLASS)
    assert messages(loaded) == [
        "a.yaml:4:18: no NodeClass is named 'gpus'; did you mean 'gpu'?",
        "a.yaml:7:3: unknown key 'weigth' in ComputePool.spec; did you mean 'weight'?",
    ]


def test_rules_do_not_report_a_value_that_was_removed_as_wrong(read: Reader) -> None:
    sources = "sources: [{type: block}, {type: spot, maxHourlyUsd: cheap, maxMonthlyUsd: 9}]"
    (only,) = messages(read(joined(NODE_CLASS, pool(sources))))
    assert only.endswith("sources[1].maxHourlyUsd must be a number")


def test_a_reference_to_an_invalid_document_is_not_reported(read: Reader) -> None:
    loaded = read(joined(NODE_CLASS + "  efaa: true\n", pool()))
    assert [problem.code for problem in loaded.problems] == ["unknown-key"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no document in it"),
        (b"# only a comment\n---\n", "has no document in it"),
        (b"a: 1\nb: \xff\n", "is not UTF-8 text: byte 0xff is not allowed here"),
        ("a: 1".encode("utf-16"), "is not UTF-8 text: byte 0xff is not allowed here"),
    ],
)
def test_a_file_without_text_documents_is_reported(read: Reader, content: bytes, message: str) -> None:
    assert [problem.message for problem in read(content).problems] == [message]


def test_a_byte_order_mark_is_accepted(read: Reader) -> None:
    assert messages(read(b"\xef\xbb\xbf" + NODE_CLASS.encode())) == []


def test_files_that_cannot_be_read_are_reported(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "huge.yaml").write_bytes(b"#" * (8 * 2**20 + 1))
    names = ["absent.yaml", ".", "huge.yaml", "nul\0.yaml", "a" * 300]
    loaded = load([tmp_path / name for name in names], catalog)
    assert len(loaded.errors) == len(names)
    assert {problem.code for problem in loaded.errors} == {"file"}


def test_a_file_named_twice_is_read_once(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(NODE_CLASS)
    assert load([path, path], catalog).problems == ()


def test_without_a_platform_there_is_no_spec_and_the_error_says_why(read: Reader) -> None:
    loaded = read(NODE_CLASS)
    assert loaded.spec is None
    assert loaded.problems == ()
    with pytest.raises(SpecError, match="no Platform document"):
        loaded.checked_spec()


def test_the_spec_of_invalid_documents_raises_with_every_error(read: Reader) -> None:
    with pytest.raises(SpecError, match=r"(?s)a\.yaml:3:7.*b\.yaml:1:1"):
        read("a: 1\n---\nkind: Nope\n", "- 1\n").checked_spec()


def test_models_come_with_the_document(read: Reader) -> None:
    (document,) = read(pool()).documents
    assert isinstance(document.model, ComputePool)
