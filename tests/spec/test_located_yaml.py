"""YAML with positions, and what YAML 1.1 reads differently from what people mean."""

from __future__ import annotations

import pytest

from tidemill.spec.located_yaml import MAX_DEPTH, ParsedYaml, parse
from tidemill.spec.problem import Position


def one(text: str) -> ParsedYaml:
    (parsed,) = parse(text, "f.yaml")
    return parsed


def complaints(text: str) -> list[str]:
    return [str(problem) for parsed in parse(text, "f.yaml") for problem in parsed.problems]


def test_every_key_and_value_has_a_position() -> None:
    parsed = one("a:\n  - b: 1\n    c: {d: x}\n")
    assert parsed.data == {"a": [{"b": 1, "c": {"d": "x"}}]}
    assert parsed.keys["a", 0, "c", "d"] == Position(3, 9)
    assert parsed.values["a", 0, "c", "d"] == Position(3, 12)


def test_columns_count_characters_and_not_bytes() -> None:
    parsed = one("ä: {ö: x, no: y}")
    assert parsed.keys["ä", "ö"] == Position(1, 5)


def test_a_missing_value_has_the_position_of_its_nearest_parent() -> None:
    assert one("a:\n  b: {}\n").at(("a", "b", "c", 3)) == Position(2, 6)


def test_a_duplicate_key_is_reported_with_both_positions() -> None:
    assert complaints("kind: Platform\nspec:\n  a: 1\n  a: 2\n") == [
        "f.yaml:4:3: duplicate key 'a' in Platform.spec; first given at 3:3"
    ]


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "No", "ON"])
def test_a_bare_yaml_1_1_boolean_is_refused(word: str) -> None:
    (complaint,) = complaints(f"a: {word}")
    assert complaint.startswith(f"f.yaml:1:4: YAML reads a bare '{word}' as ")
    assert one(f"a: '{word}'").problems == []


def test_true_and_false_are_booleans() -> None:
    parsed = one("[true, False]")
    assert parsed.data == [True, False]
    assert not parsed.problems


@pytest.mark.parametrize("text", ["12:30", "12:30:45", "1:30.5", "-1:00"])
def test_a_number_in_base_60_is_refused(text: str) -> None:
    (complaint,) = complaints(f"a: {text}")
    assert "base 60" in complaint


@pytest.mark.parametrize(
    ("text", "value"), [("0x10", 16), ("1_000", 1000), ("-3", -3), ("0", 0), ("1.5", 1.5), ("~", None)]
)
def test_plain_numbers_and_null_are_read_as_in_yaml(text: str, value: object) -> None:
    parsed = one(f"a: {text}")
    assert parsed.data == {"a": value}
    assert not parsed.problems


@pytest.mark.parametrize(
    "text", ["010", ".inf", ".nan", "1.0e+999", "!!int x", "!color red", "!!set {a}", "9" * 5000]
)
def test_unusable_scalars_are_reported(text: str) -> None:
    assert len(complaints(f"a: {text}")) == 1


def test_timestamps_stay_text_so_that_a_missing_zone_can_be_reported() -> None:
    assert one("[2026-11-16T11:30:00Z, 2026-11-16T11:30:00, 2026-11-16]").data == [
        "2026-11-16T11:30:00Z",
        "2026-11-16T11:30:00",
        "2026-11-16",
    ]


@pytest.mark.parametrize("key", ["1", "true", "on", "~", "1.5"])
def test_a_key_that_is_not_text_must_be_quoted(key: str) -> None:
    (complaint,) = complaints(f"a:\n  {key}: x")
    assert complaint.startswith(f"f.yaml:2:3: the key '{key}' is read as ")


def test_a_list_as_a_key_is_refused() -> None:
    assert complaints("? [a]\n: b\n") == ["f.yaml:1:3: a key must be text, not a list or a mapping"]


def test_aliases_and_merge_keys_are_followed_and_own_keys_take_precedence() -> None:
    parsed = one("base: &b {x: 1, y: 2}\nmore: &m {z: 3}\nuse: {<<: [*b, *m], y: 5}\nsame: *b\n")
    assert parsed.data["use"] == {"x": 1, "y": 5, "z": 3}
    assert parsed.data["same"] == {"x": 1, "y": 2}
    assert parsed.values["use", "x"] == Position(1, 14), "a merged value stands where it is written"
    assert not parsed.problems


def test_merging_something_other_than_a_mapping_is_reported() -> None:
    (complaint,) = complaints("a: {<<: 3}")
    assert "must be a mapping" in complaint


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (complaint,) = complaints("\n".join(lines))
    assert "aliases that contain aliases" in complaint


def test_merges_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 10)]
    (complaint,) = complaints("\n".join(lines))
    assert "aliases that contain aliases" in complaint


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}"])
def test_an_alias_to_its_own_container_is_reported(text: str) -> None:
    (complaint,) = complaints(text)
    assert "refers to the value itself" in complaint


@pytest.mark.parametrize("depth", [MAX_DEPTH + 5, 5000, 200_000])
def test_deep_nesting_is_reported(depth: int) -> None:
    assert len(complaints("[" * depth + "]" * depth)) == 1


def test_documents_before_a_syntax_error_are_still_read() -> None:
    first, second = parse("a: 1\n---\nb: [\n", "f.yaml")
    assert first.data == {"a": 1}
    assert str(second.problems[0]).startswith("f.yaml:4:1: not valid YAML: ")


def test_a_character_that_yaml_forbids_is_reported_with_its_position() -> None:
    (complaint,) = complaints("a: 1\nb: \x07\n")
    assert complaint.startswith("f.yaml:")
    assert "does not allow" in complaint


def test_empty_documents_between_separators_are_skipped() -> None:
    assert [parsed.data for parsed in parse("---\n---\na: 1\n---\n# end\n", "f.yaml")] == [{"a": 1}]
