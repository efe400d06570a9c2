"""YAML documents for tests, with overrides for what a test is about."""

from __future__ import annotations

from pathlib import Path

from tidemill.spec.read import Loaded


def messages(loaded: Loaded) -> list[str]:
    """The problems as printed, without the folder the test happens to run in."""
    return [str(each).removeprefix(str(Path(each.file).parent) + "/") for each in loaded.problems]


PLATFORM = """\
kind: Platform
metadata: {name: prod}
spec:
  region: us-east-1
  deployment: prod
  cluster: {name: prod}
  subnets: {us-east-1a: [subnet-0a1]}
"""
NODE_CLASS = """\
kind: NodeClass
metadata: {name: gpu}
spec:
  amiSelectorTerms: [{alias: bottlerocket@v1.52.0}]
"""


def pool(
    *lines: str, name: str = "training", limits: str = "{gpus: 64}", types: str = "[p5.48xlarge]"
) -> str:
    """A sound block pool; further lines go to its spec, and begin at line 7."""
    head = [
        "kind: ComputePool",
        f"metadata: {{name: {name}}}",
        "spec:",
        "  nodeClassName: gpu",
        f"  requirements: {{instanceTypes: {types}}}",
        f"  limits: {limits}",
    ]
    return "\n".join([*head, *(f"  {line}" for line in lines)]) + "\n"


def plan(*windows: str, pool: str = "training") -> str:
    head = ["kind: CapacityPlan", "metadata: {name: november}", "spec:", f"  pool: {pool}", "  demand:"]
    return "\n".join([*head, *(f"    - {{{window}}}" for window in windows)]) + "\n"


def window(
    name: str = "run-1",
    start: str = "2026-11-16T11:30:00Z",
    end: str = "2026-11-20T11:30:00Z",
    instances: int = 8,
    type: str = "p5.48xlarge",
) -> str:
    return f"name: {name}, from: {start}, to: {end}, instanceType: {type}, instances: {instances}"


def scenario(*lines: str) -> str:
    """Further lines go to its spec, and begin at line 6."""
    head = [
        "kind: Scenario",
        "metadata: {name: play}",
        "spec:",
        "  start: 2026-11-16T00:00:00Z",
        "  duration: 30d",
    ]
    return "\n".join([*head, *(f"  {line}" for line in lines)]) + "\n"


def block(
    name: str = "a", count: int = 4, duration: str = "7d", type: str = "p5.48xlarge", more: str = ""
) -> str:
    more = f", {more}" if more else ""
    shape = f"instanceType: {type}, count: {count}, zone: us-east-1a, duration: {duration}"
    return f"{{name: {name}, {shape}{more}}}"


def joined(*documents: str) -> str:
    return "---\n".join(documents)
