"""Where alerts go, and when some of them are raised: part of the Platform document.

A secret is never in a document: it is named, and read where it is used.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidemill.model.alerts import AlertKind, Severity
from tidemill.spec.model import Model, Name
from tidemill.spec.units import Length

# How long an engine with nothing to do sleeps before it looks again, and is heard of.
LONGEST_SLEEP = timedelta(minutes=10)
Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]


class SecretRef(Model):
    """Where a secret is found: in an environment variable or in a file. Read again at every delivery."""

    env: str = ""
    """Name of an environment variable of the engine."""
    file: str = ""
    """Path of a file, such as one mounted from a Kubernetes Secret; spaces and newlines around it are cut off."""

    @model_validator(mode="after")
    def _one_place(self) -> SecretRef:
        if bool(self.env) == bool(self.file):
            raise ValueError("a secret has either 'env' or 'file'")
        return self


class Notification(Model):
    """One place that alerts are sent to."""

    name: Name
    type: Literal["webhook", "slack", "pagerduty", "sns"]
    url: Url | None = None
    """Webhook: where to post. PagerDuty: only where its address is not the usual one."""
    url_from: SecretRef | None = None
    """The address as a secret. Slack: the address of an incoming webhook is one."""
    secret_from: SecretRef | None = None
    """Webhook: signs each body with HMAC-SHA256."""
    routing_key_from: SecretRef | None = None
    """PagerDuty: the integration key of an Events API v2 service."""
    topic_arn: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:.+$")] | None = None
    """SNS: the topic; its region is where it is published."""
    format: Literal["text", "webhook", "slack", "pagerduty"] = "text"
    """SNS: what the message is. Text is for mail and phones; the others are the bodies the other types post."""
    min_severity: Severity = Severity.INFO
    """Milder alerts are not sent here."""
    only: tuple[AlertKind, ...] = ()
    """Only these kinds; empty: all."""

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Notification:
        if self.url is not None and self.url_from is not None:
            raise ValueError("a notification has either 'url' or 'urlFrom'")
        if self.type == "webhook" and self.url is None and self.url_from is None:
            raise ValueError("a webhook needs 'url' or 'urlFrom'")
        if self.type == "slack" and (self.url is not None or self.url_from is None):
            raise ValueError("the address of a Slack webhook is a secret: give 'urlFrom', not 'url'")
        if self.type == "pagerduty" and self.routing_key_from is None:
            raise ValueError("PagerDuty needs 'routingKeyFrom'")
        if (self.type == "sns") != (self.topic_arn is not None):
            raise ValueError("'topicArn' is what SNS needs, and only SNS")
        if self.type != "sns" and self.format != "text":
            raise ValueError("'format' is for SNS; the other types have one body each")
        if self.secret_from is not None and self.type != "webhook":
            raise ValueError("'secretFrom' signs the bodies of a webhook; other types have their own ways")
        return self

    def wants(self, kind: AlertKind, severity: Severity) -> bool:
        return severity.rank >= self.min_severity.rank and (not self.only or kind in self.only)


class AlertRules(Model):
    """When alerts are raised that depend on time, and how long they are tried."""

    extension_lead: Length = timedelta(hours=24)
    """How long before the last moment for an extension (an hour before a block's end) it is warned of."""
    silent_after: Length = timedelta(minutes=15)
    """`tidemill watchdog` raises an alert when the engine was not heard of for this long; at least 11m."""
    give_up_after: Length = timedelta(hours=24)
    """A delivery that failed for this long is not tried again."""

    @model_validator(mode="after")
    def _is_longer_than_its_sleep(self) -> AlertRules:
        if self.silent_after < LONGEST_SLEEP + timedelta(minutes=1):
            raise ValueError(
                "'silentAfter' must be at least 11m: an engine with nothing to do sleeps for 10 minutes"
            )
        return self


def check_names(notifications: tuple[Notification, ...]) -> None:
    """ValueError: two have one name, so nobody could say which was told."""
    seen: set[str] = set()
    for one in notifications:
        if one.name in seen:
            raise ValueError(f"two notifications are called '{one.name}'")
        seen.add(one.name)
