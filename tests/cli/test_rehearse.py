"""`tidemill rehearse`: its exit codes, and a report file that cannot be written."""

from __future__ import annotations

import json

import pytest

from tidemill.cli import main


@pytest.mark.parametrize(
    ("target", "says"),
    [("missing/x.html", "there is no folder "), ("x" * 300, "File name too long")],
)
def test_a_report_that_cannot_be_written_exits_2(capsys, tmp_path, target, says):
    assert main(["rehearse", "demo", "--html", str(tmp_path / target)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: cannot write {tmp_path / target}: ")
    assert says in shown.err
    assert shown.out == ""


REFUSED = """
kind: Platform
apiVersion: tidemill.dev/v1alpha1
metadata: {name: mill}
spec: {region: us-east-1, deployment: mill, cluster: {name: ml}, subnets: {us-east-1a: [subnet-0a1]}}
---
kind: NodeClass
apiVersion: tidemill.dev/v1alpha1
metadata: {name: gpu}
spec: {amiSelectorTerms: [{alias: al2023@v20261101}]}
---
kind: ComputePool
apiVersion: tidemill.dev/v1alpha1
metadata: {name: train}
spec:
  nodeClassName: gpu
  sources: [{type: block}]
  requirements: {instanceTypes: [p5.48xlarge]}
  limits: {nodes: 2}
---
kind: Scenario
apiVersion: tidemill.dev/v1alpha1
metadata: {name: nothing-bought}
spec:
  start: 2026-11-16T08:00:00Z
  duration: 6h
  jobs: [{name: fit, gpus: 8, arrivals: {at: [0s]}, duration: {fixed: 1h}}]
"""


@pytest.mark.requirement("GB-4")
def test_a_plan_that_is_safe_but_serves_nobody_exits_6(capsys, tmp_path):
    (tmp_path / "plan.yaml").write_text(REFUSED)
    assert main(["rehearse", str(tmp_path / "plan.yaml"), "--json"]) == 6
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict["safe"], verdict["served"], verdict["worth_it"]) == (True, False, None)
    assert verdict["unserved"] == [{"kind": "waiting", "names": ["fit-1"]}]
    assert main(["rehearse", str(tmp_path / "plan.yaml")]) == 6
    assert capsys.readouterr().out.startswith("✗ Safe, but not served")
