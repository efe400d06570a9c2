"""docs/reference/cli.md is what the commands generate."""

from pathlib import Path

from tidemill.cli.reference import markdown

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_committed_reference_is_up_to_date():
    assert COMMITTED.read_text() == markdown(), (
        "run: python -m tidemill.cli.reference > docs/reference/cli.md"
    )


def test_every_verb_has_a_section():
    from tidemill.cli import VERBS

    text = markdown()
    missing = [name for name in VERBS if f"## tidemill {name}" not in text]
    assert not missing
