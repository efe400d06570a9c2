"""Whatever a file contains, reading it gives problems and never an exception."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tidemill.catalog import Catalog
from tidemill.spec.read import load

# The path is written anew by each example, so that one folder serves them all.
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

WORDS = (
    *(
        "kind",
        "Platform",
        "ComputePool",
        "Scenario",
        "spec",
        "metadata",
        "name",
        "x",
        "limits",
        "cpu",
        "sources",
    ),
    *(
        "demand",
        "reservations",
        "duration",
        "start",
        "requirements",
        "2026-11-16T00:00:00",
        "99999999999d",
        "é",
    ),
    *(
        "-5",
        "no",
        "12:30",
        "&a",
        "*a",
        "<<",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "?",
        "|",
        "'",
        '"',
        "#",
        "~",
        "%",
        "@",
    ),
    *(": ", "- ", "\n", "\n  ", "\n    ", "---\n", "!!int ", "\t", "\u2028", "\x00"),
)
KEYS = (
    *("name", "type", "sources", "limits", "cpu", "requirements", "instanceTypes", "demand", "reservations"),
    *("duration", "faults", "target", "at", "start", "drain", "taints", "key", "labels", "pool"),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.floats(0, 9),
    st.sampled_from(["x", "7d", "p5.48xlarge"]),
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
KINDS = st.sampled_from(["Platform", "NodeClass", "ComputePool", "CapacityPlan", "Scenario"])


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@example("kind: [Platform]\nmetadata: {name: [x]}\n")
@example("kind: Scenario\nmetadata: 3\nspec: {faults: {a: b}, reservations: [1, [2]], start: {}}\n")
@example("kind: ComputePool\nmetadata: {name: x}\nspec: {nodeClassName: a, sources: [3, {type: []}]}")
@settings(patiently, max_examples=300)
def test_no_text_makes_reading_raise(tmp_path: Path, catalog: Catalog, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    for problem in load([path], catalog).problems:
        assert "\n" not in str(problem)
        assert problem.line >= 1
        assert problem.column >= 1


@given(KINDS, DATA)
@settings(patiently, max_examples=200)
def test_no_shape_of_data_makes_reading_raise(
    tmp_path: Path, catalog: Catalog, kind: str, spec: object
) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump({"kind": kind, "metadata": {"name": "x"}, "spec": spec}))
    for problem in load([path], catalog).problems:
        assert "\n" not in str(problem)
        assert (problem.line >= 1, problem.column >= 1) == (True, True)
