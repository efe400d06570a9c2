"""The exact body for each type of target: people have built on them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW
from tests.notify.sample_alerts import GONE, message
from tidemill.model.alerts import Severity
from tidemill.notify import bodies

OVER = NOW + timedelta(hours=1)


@pytest.mark.requirement("NT-1")
def test_the_body_of_a_webhook():
    assert bodies.webhook(message()) == {
        "version": 1,
        "id": "offer-gone/tp-1#1/raised",
        "event": "raised",
        "key": "offer-gone/tp-1",
        "kind": "offer-gone",
        "severity": "error",
        "about": "tp-1",
        "title": "EC2 offers nothing inside an approved envelope",
        "text": "It is tried again until 12:00; widen <zones> & fee.",
        "facts": [{"name": "pool", "value": "p5"}, {"name": "highest fee", "value": "$30,000"}],
        "raised_at": "2026-11-16T12:00:00Z",
        "resolved_at": None,
        "platform": {"deployment": "tides", "region": "us-west-2", "cluster": "tides"},
    }
    over = bodies.webhook(message(resolved_at=OVER))
    assert (over["event"], over["id"]) == ("resolved", "offer-gone/tp-1#1/resolved")
    assert over["resolved_at"] == "2026-11-16T13:00:00Z"


@pytest.mark.requirement("NT-1")
def test_the_body_for_slack_is_block_kit_with_its_control_characters_escaped():
    assert bodies.slack(message()) == {
        "text": "[tides] EC2 offers nothing inside an approved envelope",
        "blocks": [
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": ":red_circle: *EC2 offers nothing inside an approved envelope*",
                },
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "It is tried again until 12:00; widen &lt;zones&gt; &amp; fee.",
                },
            },
            {
                "type": "section",
                "fields": [
                    {"type": "mrkdwn", "text": "*pool*\np5"},
                    {"type": "mrkdwn", "text": "*highest fee*\n$30,000"},
                ],
            },
            {
                "type": "context",
                "elements": [
                    {
                        "type": "mrkdwn",
                        "text": "tides, tides, us-west-2 | error | 2026-11-16T12:00:00Z | `offer-gone/tp-1`",
                    }
                ],
            },
        ],
    }


@pytest.mark.requirement("NT-1")
def test_the_slack_body_of_a_resolved_alert():
    over = bodies.slack(message(resolved_at=OVER))
    assert over["text"] == "[tides] Resolved: EC2 offers nothing inside an approved envelope"
    assert over["blocks"][0]["text"]["text"].startswith(":white_check_mark: *Resolved: ")
    assert len(over["blocks"]) == 2


def test_the_slack_body_keeps_within_slacks_limits():
    long = replace(GONE, text="x" * 5000, facts=tuple((f"n{place}", "y" * 3000) for place in range(12)))
    body = bodies.slack(message(long))
    assert len(body["blocks"][1]["text"]["text"]) == 3000
    assert len(body["blocks"][2]["fields"]) == 10
    assert all(len(one["text"]) == 2000 for one in body["blocks"][2]["fields"])


@pytest.mark.requirement("NT-1")
def test_the_body_for_pagerduty_is_a_trigger_and_then_a_resolve_under_one_key():
    assert bodies.pagerduty(message(hostname="mill.example.com"), "R123") == {
        "routing_key": "R123",
        "event_action": "trigger",
        "dedup_key": "tides/offer-gone/tp-1",
        "client": "Tidemill",
        "client_url": "https://mill.example.com",
        "payload": {
            "summary": "[tides] EC2 offers nothing inside an approved envelope",
            "source": "tides",
            "severity": "error",
            "timestamp": "2026-11-16T12:00:00Z",
            "component": "tp-1",
            "group": "tides",
            "class": "offer-gone",
            "custom_details": {
                "what to do": "It is tried again until 12:00; widen <zones> & fee.",
                "pool": "p5",
                "highest fee": "$30,000",
            },
        },
    }
    assert bodies.pagerduty(message(resolved_at=OVER), "R123") == {
        "routing_key": "R123",
        "event_action": "resolve",
        "dedup_key": "tides/offer-gone/tp-1",
    }


@pytest.mark.parametrize("severity", list(Severity))
def test_every_severity_is_one_that_pagerduty_knows(severity: Severity):
    assert severity.value in ("info", "warning", "error", "critical")
    assert bodies.slack(message(replace(GONE, severity=severity)))["blocks"]


def test_long_pagerduty_keys_are_cut_and_stay_unique():
    one, other = (message(replace(GONE, key="k" * 300 + end)) for end in "ab")
    assert bodies.dedup_key(one) != bodies.dedup_key(other)
    assert len(bodies.dedup_key(one)) <= 255


def test_a_fact_named_twice_keeps_both_values():
    twice = replace(GONE, facts=(("block", "cr-1"), ("block", "cr-2")))
    assert bodies.pagerduty(message(twice), "")["payload"]["custom_details"]["block"] == "cr-1, cr-2"


def test_a_subject_is_one_short_line_of_ascii():
    odd = bodies.subject(message(replace(GONE, title="späť\nnothing " + "x" * 200)))
    assert odd.startswith("[tides] error: sp???nothing x")
    assert odd.endswith("...")
    assert len(odd) == 100
    assert bodies.subject(message(resolved_at=OVER)).startswith("[tides] resolved: EC2")


def test_the_text_body_says_what_to_do():
    assert bodies.text(message()) == (
        "EC2 offers nothing inside an approved envelope\n\n"
        "It is tried again until 12:00; widen <zones> & fee.\n\n"
        "pool: p5\nhighest fee: $30,000\n\n"
        "error, tides, tides, us-west-2, 2026-11-16T12:00:00Z\n"
    )
    assert bodies.text(message(resolved_at=OVER)).startswith("Resolved at 2026-11-16T13:00:00Z: EC2")


def test_every_body_is_json():
    for body in (bodies.webhook(message()), bodies.slack(message()), bodies.pagerduty(message(), "k")):
        assert json.loads(json.dumps(body)) == body
