"""Pools with devices, for the tests of device plugins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.decide.builders import pool, spec
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass

AL2023, BOTTLEROCKET = "al2023@v20261101", "bottlerocket@v1.52.0"


def with_classes(*pools: ComputePool, **platform: Any) -> Spec:
    """Their node classes: `efa` and `rocket` (Bottlerocket) have EFA, `gpu` has not."""
    classes = {"gpu": (AL2023, False), "efa": (AL2023, True), "rocket": (BOTTLEROCKET, True)}
    made = {
        name: NodeClass.model_validate(
            {"metadata": {"name": name}, "spec": {"amiSelectorTerms": [{"alias": alias}], "efa": efa}}
        )
        for name, (alias, efa) in classes.items()
    }
    return replace(spec(*pools, **platform), node_classes=made)


def cluster() -> Spec:
    """GPUs with EFA, GPUs on Bottlerocket, Trainium with EFA, and CPUs."""
    taint, warming = {"key": "team", "value": "ml"}, {"key": "warming", "value": "x"}
    return with_classes(
        pool("p5", nodeClassName="efa", taints=[taint], startupTaints=[warming]),
        pool("rocket", nodeClassName="rocket"),
        pool("trn", nodeClassName="efa", requirements={"instanceTypes": ["trn1.32xlarge"]}),
        pool("cpu", requirements={"instanceTypes": ["c7i.4xlarge"]}),
    )
