"""`tidemill handover`: what it shows, what it says without --dry-run, and that it changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemill.cli import root

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "handover.yaml")


def run(*words: str) -> Result:
    return CliRunner().invoke(root, ["handover", *words])


def shown(*words: str) -> str:
    result = run(*words, "--dry-run", "-f", EXAMPLE)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.requirement("CB-9")
def test_dry_run_shows_method_overlap_and_steps_of_every_service() -> None:
    text = shown("block-a", "block-b")
    assert "Hand-over of block-a" in text
    assert "Deployment/chat in serving, pool serve: keeps its minimum" in text
    assert "(measured)" in text
    assert "its rollout is restarted, 2 new replicas at a time" in text
    assert "missing: maxUnavailable comes to 1: set it to 0" in text


def test_dry_run_as_json_has_the_same() -> None:
    body = json.loads(shown("block-a", "block-b", "--json"))
    services = {one["service"]: one for one in body["services"]}
    chat = services["Deployment/chat"]
    assert (chat["method"], chat["in_effect"], chat["short"]) == ("rollout", "rollout", False)
    assert chat["overlap_s"] > chat["needed_overlap_s"]
    assert [step["at"] for step in chat["steps"]] == sorted(step["at"] for step in chat["steps"])
    careless = services["Deployment/rank"]
    assert (careless["method"], careless["in_effect"]) == ("rollout", "evict")


def test_without_a_successor_it_shows_the_shortage_and_remedies() -> None:
    body = json.loads(shown("block-b", "--at", "3d", "--json"))
    (chat, *_) = body["services"]
    assert chat["short"]
    assert chat["short_s"] is None
    assert chat["overlap_s"] is None
    assert {way["means"] for way in chat["ways"]} == {
        "a-day-more-of-b", "a-days-extension-of-a", "a-start-now-block", "an-on-demand-bridge",
    }  # fmt: skip
    assert any(way["usd"] for way in chat["ways"])


def test_without_dry_run_it_says_that_the_engine_hands_over() -> None:
    result = run("block-a", "block-b")
    assert result.exit_code == 0
    assert "by itself" in result.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("blok-a", "--dry-run", "-f", EXAMPLE), "did you mean 'block-a'?"),
        (("block-a", "block-a", "--dry-run", "-f", EXAMPLE), "are the same block"),
        (("block-a", "--dry-run"), "-f FILE"),
        (("block-a", "--dry-run", "-f", EXAMPLE, "--at", "99d"), "outside the scenario"),
    ],
)
def test_wrong_input_exits_2_with_a_hint(words: tuple[str, ...], sentence: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_block_without_services_has_nothing_to_hand_over() -> None:
    assert "No service runs on block-b now" in shown("block-b", "--at", "1h")


def test_a_bought_block_is_known_by_the_name_that_status_shows() -> None:
    """The name of its demand window: it has no other before it is bought."""
    demo = Path(__file__).parents[2] / "examples" / "first-block.yaml"
    result = run("week-47", "--dry-run", "-f", str(demo))
    assert result.exit_code == 0, result.output
    assert "Hand-over of week-47, which must be empty by 20 Nov 11:00 UTC" in result.stdout
    assert "No service runs on week-47 now" in result.stdout
    unknown = run("week-48", "--dry-run", "-f", str(demo))
    assert unknown.exit_code != 0
    assert "there is no block 'week-48'; did you mean 'week-47'?" in unknown.output
    early = run("week-47", "--dry-run", "-f", str(demo), "--at", "1h")
    assert early.exit_code == 2
    assert "no block is bought for the window 'week-47' by then" in early.output
