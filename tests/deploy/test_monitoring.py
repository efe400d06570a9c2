"""The alert rules and the dashboard: Prometheus reads them, they fire when they should, every metric in them exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import CHART, IMAGE, named, rendered
from tidemill.controller.reference import every_metric

RULES = CHART / "monitoring" / "rules.yaml"
DASHBOARD = CHART / "monitoring" / "dashboard.json"
TESTS = Path(__file__).parent / "rules_test.yaml"
HOW_TO_GET_IT = "no promtool found: apt-get install prometheus"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("TIDEMILL_REQUIRE_ALL") == "1":
            pytest.fail(HOW_TO_GET_IT)
        pytest.skip(HOW_TO_GET_IT)
    return found


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def unknown(expression: str) -> set[str]:
    """Metrics of ours that it names and that nobody serves."""
    served = set()
    for metric in every_metric():
        served |= {
            "counter": {f"{metric.name}_total"},
            "histogram": {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")},
        }.get(metric.type, {metric.name})
    return set(re.findall(r"tidemill_[a-z_]+", expression)) - served


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return rules + [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_metric_in_a_rule_or_a_panel_exists() -> None:
    assert len(expressions()) > 30
    assert unknown("sum(tidemill_nodez)") == {"tidemill_nodez"}
    for expression in expressions():
        assert not unknown(expression), expression


def test_every_label_in_a_rule_or_a_panel_is_one_of_the_metric() -> None:
    labels = {metric.name: set(metric.labels) | {"instance", "le"} for metric in every_metric()}
    for expression in expressions():
        used = {
            name
            for group in re.findall(r"(?:by|on) \(([a-z_, ]*)\)", expression)
            for name in group.split(", ")
        } - {""}
        used |= set(re.findall(r"[{,]([a-z_]+)[!=]?[=~]", expression))
        named = {
            re.sub(r"_(total|bucket)$", "", name) for name in re.findall(r"tidemill_[a-z_]+", expression)
        }
        assert used <= set().union(*(labels[name] for name in named)), expression


def test_prometheus_reads_the_rules(promtool: str) -> None:
    run(promtool, "check", "rules", str(RULES))


def test_the_rules_fire_when_they_should_and_not_before(promtool: str, tmp_path: Path) -> None:
    cases = yaml.safe_load(TESTS.read_text())
    fired = {
        each["alertname"]
        for case in cases["tests"]
        for each in case["alert_rule_test"]
        if each.get("exp_alerts")
    }
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert fired == {rule["alert"] for rule in group["rules"]}, "each rule is seen to fire"
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "tests.yaml").write_text(TESTS.read_text())
    run(promtool, "test", "rules", str(tmp_path / "tests.yaml"))


def test_the_chart_installs_both_when_asked() -> None:
    asked = ("metrics.rules.enabled=true", "metrics.dashboard.enabled=true")
    objects = rendered("--set", IMAGE, *(word for each in asked for word in ("--set", each)))
    assert named(objects, "PrometheusRule", "tidemill")["spec"] == yaml.safe_load(RULES.read_text())
    dashboard = named(objects, "ConfigMap", "tidemill-dashboard")
    assert json.loads(dashboard["data"]["tidemill.json"]) == json.loads(DASHBOARD.read_text())
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
