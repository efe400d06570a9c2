"""What the models check between the fields of a document, in CEL, so that an API server refuses it at once.

By model; the sentences are those of the models. What needs other documents or the catalog (does the NodeClass exist,
does EC2 sell this type) is checked when the documents are read and told in their status. A test creates documents
that nobody wrote on a real API server and compares its answer with the models'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    expression: str  # over `self`: true where the document is right
    message: str


def _given(field: str) -> str:
    """Whether a field of text has something in it."""
    return f"(has(self.{field}) && self.{field} != '')"


def _at_least(field: str, shortest: str) -> str:
    """Of a field with a duration, which may be left out. CEL knows no days, and whoever writes days means long."""
    value = f"self.{field}"
    return f"!has({value}) || {value}.contains('d') || duration({value}) >= duration('{shortest}')"


def _one_of(*fields: str) -> str:
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields) + " == 1"


_RUNS_FORWARD = Rule("self.to > self.from", "'to' must be after 'from'")
_ONE_UNIT = Rule(_one_of("instances", "gpus"), "give either 'instances' or 'gpus'")
_BY_THE_HOUR = "s.type in ['spot', 'on-demand']"

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "SecretRef": (Rule(f"{_given('env')} != {_given('file')}", "give either 'env' or 'file'"),),
    "Notification": (
        Rule("!(has(self.url) && has(self.urlFrom))", "give either 'url' or 'urlFrom', not both"),
        Rule(
            "self.type != 'webhook' || has(self.url) || has(self.urlFrom)",
            "a webhook needs 'url' or 'urlFrom'",
        ),
        Rule(
            "self.type != 'slack' || (has(self.urlFrom) && !has(self.url))",
            "the address of a Slack webhook is a secret: give 'urlFrom', not 'url'",
        ),
        Rule("self.type != 'pagerduty' || has(self.routingKeyFrom)", "PagerDuty needs 'routingKeyFrom'"),
        Rule(
            "(self.type == 'sns') == has(self.topicArn)",
            "'topicArn' is required for type sns, and only allowed there",
        ),
        Rule(
            "self.type == 'sns' || !has(self.format) || self.format == 'text'",
            "'format' is only allowed for type sns; the other types have one format each",
        ),
        Rule("!has(self.secretFrom) || self.type == 'webhook'", "'secretFrom' is only allowed for type webhook"),
    ),
    "AlertRules": (
        Rule(
            _at_least("silentAfter", "11m"),
            "'silentAfter' must be at least 11m: an engine with nothing to do sleeps for 10 minutes",
        ),
    ),
    "PlatformSpec": (
        Rule(
            "!has(self.notifications) || self.notifications.all(n, self.notifications.exists_one(m, m.name == n.name))",
            "two notifications have the same name; rename one of them",
        ),
    ),
    "AmiTerm": (Rule(_one_of("alias", "id"), "give either 'alias' or 'id'"),),
    "ComputePoolSpec": (
        Rule(
            f"!has(self.sources) || self.sources.all(s, {_BY_THE_HOUR})"
            f" || self.sources.all(s, !({_BY_THE_HOUR}) || (has(s.maxHourlyUsd) && has(s.maxMonthlyUsd)))",
            "overflow by the hour has no cap: set 'maxHourlyUsd' and 'maxMonthlyUsd'",
        ),
        Rule(
            "!(has(self.admittedPodsOnly) && self.admittedPodsOnly && has(self.provisioner)"
            " && self.provisioner == 'karpenter')",
            "Karpenter launches nodes for pods that are admitted already, and promises no whole gangs: a taint for"
            " admitted pods only would keep nothing free; remove it, or use another provisioner",
        ),
    ),
    "SourceSpec": (
        Rule(
            "self.type in ['block', 'odcr'] || ((!has(self.ids) || self.ids.size() == 0)"
            " && (!has(self.tags) || self.tags.size() == 0))",
            "'ids' and 'tags' select reservations, but a source by the hour uses none; remove them",
        ),
    ),
    "DisruptionBudgetSpec": (
        Rule(
            "!has(self.nodes) || self.nodes.matches('^([0-9]{1,6}|(100|[0-9]{1,2})%)$')",
            "'nodes' is neither a number of nodes nor a percentage such as '10%'",
        ),
        Rule(
            "has(self.schedule) == has(self.duration)",
            "a window needs a schedule and a duration",
        ),
    ),
    "ConstantDemand": (
        _ONE_UNIT,
        Rule("!has(self.from) || !has(self.to) || self.to > self.from", "'to' must be after 'from'"),
    ),
    "WeeklyDemand": (_ONE_UNIT,),
    "WindowDemand": (_ONE_UNIT, _RUNS_FORWARD),
    "DemandWindow": (
        _RUNS_FORWARD,
        Rule("self.instances <= 64", "EC2 sells at most 64 instances in one block; split it into several windows"),
    ),
    "CalendarEntry": (
        Rule(
            _one_of("constant", "weekly", "window", "learned"),
            "give exactly one of 'constant', 'weekly', 'window' and 'learned'",
        ),
    ),
    "DemandCalendar": (
        Rule(
            "self.entries.all(e, self.entries.exists_one(f, f.name == e.name))", "entries must have different names"
        ),
        Rule(
            _at_least("replanEvery", "1h"),
            "'replanEvery' must be at least 1h: every replan makes dozens of calls to EC2",
        ),
    ),
    "CapacityPlanSpec": (
        Rule(
            "(has(self.demand) && self.demand.size() > 0) != has(self.calendar)",
            "a plan must have either 'demand' (windows) or a 'calendar'",
        ),
        Rule(
            "!has(self.calendar) || !has(self.proposeBefore)",
            "'proposeBefore' applies to windows; set 'buyAhead' in the calendar",
        ),
    ),
}  # fmt: skip
