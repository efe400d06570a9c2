"""Notifications: each type requires its own fields, and no document holds a secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tidemill.model.alerts import AlertKind, Severity
from tidemill.spec.platform import Notification, PlatformSpec

TOPIC = "arn:aws:sns:us-west-2:123456789012:gpu-alerts"
KEY = {"env": "PAGERDUTY_KEY"}


def target(**fields: Any) -> Notification:
    return Notification.model_validate({"name": "ops", **fields})


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    "fields",
    [
        {"type": "webhook", "url": "https://ops.example.com/hook", "secretFrom": {"file": "/run/hook"}},
        {"type": "webhook", "urlFrom": {"env": "HOOK"}},
        {"type": "slack", "urlFrom": {"env": "SLACK"}},
        {"type": "pagerduty", "routingKeyFrom": KEY},
        {"type": "sns", "topicArn": TOPIC},
        {"type": "sns", "topicArn": TOPIC, "format": "slack"},
    ],
)
def test_every_type_is_accepted_with_what_it_needs(fields: dict[str, Any]):
    assert target(**fields).name == "ops"


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"type": "webhook"}, "a webhook needs 'url' or 'urlFrom'"),
        ({"type": "webhook", "url": "https://a", "urlFrom": {"env": "A"}}, "either 'url' or 'urlFrom'"),
        ({"type": "webhook", "url": "file:///etc/passwd"}, "url"),
        ({"type": "slack", "url": "https://hooks.example.com/T0/B0/secret"}, "is a secret: give 'urlFrom'"),
        ({"type": "pagerduty"}, "PagerDuty needs 'routingKeyFrom'"),
        ({"type": "sns"}, "'topicArn' is required for type sns"),
        ({"type": "slack", "urlFrom": {"env": "A"}, "topicArn": TOPIC}, "only allowed there"),
        ({"type": "sns", "topicArn": "gpu-alerts"}, "topicArn"),
        ({"type": "slack", "urlFrom": {"env": "A"}, "format": "slack"}, "'format' is only allowed for type sns"),
        (
            {"type": "slack", "urlFrom": {"env": "A"}, "secretFrom": {"env": "B"}},
            "'secretFrom' is only allowed for type webhook",
        ),
        ({"type": "slack", "urlFrom": {"env": "A", "file": "/a"}}, "either 'env' or 'file'"),
        ({"type": "slack", "urlFrom": {}}, "either 'env' or 'file'"),
        ({"type": "slack", "urlFrom": {"env": "A"}, "only": ["approval"]}, "only"),
    ],
)  # fmt: skip
def test_an_invalid_notification_is_refused_with_what_to_write(fields: dict[str, Any], says: str):
    with pytest.raises(ValidationError) as refused:
        target(**fields)
    assert says in str(refused.value)


def test_two_notifications_with_the_same_name_are_refused():
    one = {"name": "ops", "type": "slack", "urlFrom": {"env": "SLACK"}}
    with pytest.raises(ValidationError, match="two notifications are called 'ops'"):
        PlatformSpec.model_validate(
            {"region": "r", "deployment": "d", "cluster": {"name": "c"}, "notifications": [one, one]}
        )


@pytest.mark.requirement("NT-1")
def test_a_target_gets_alerts_of_its_severity_and_kinds():
    grave = target(type="sns", topicArn=TOPIC, minSeverity="error")
    assert grave.wants(AlertKind.OFFER_GONE, Severity.CRITICAL)
    assert grave.wants(AlertKind.OFFER_GONE, Severity.ERROR)
    assert not grave.wants(AlertKind.OFFER_GONE, Severity.WARNING)
    some = target(type="sns", topicArn=TOPIC, only=["approval-waiting"])
    assert some.wants(AlertKind.APPROVAL_WAITING, Severity.INFO)
    assert not some.wants(AlertKind.OFFER_GONE, Severity.CRITICAL)


@pytest.mark.requirement("CB-16")
def test_silent_after_must_be_longer_than_the_engines_sleep():
    from tidemill.engine.loop import RESYNC
    from tidemill.spec.platform import LONGEST_SLEEP, AlertRules

    assert LONGEST_SLEEP == RESYNC
    with pytest.raises(ValidationError, match="at least 11m"):
        AlertRules.model_validate({"silentAfter": "10m"})
