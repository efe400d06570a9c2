"""Policies in the API server, the webhook and the pure function change the same objects in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.api import Api
from controlplane.start import ControlPlane
from tests.cluster.admission_ways import LABELS, both_ways, outcome
from tests.cluster.custom_resources import define_custom_resources
from tests.kube.admission import objects
from tidemill.kube.admission.rules import mutate


def test_policy_webhook_and_function_agree(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str], tmp_path: Path
) -> None:
    define_custom_resources(api)
    changed: Counter[tuple[str, bool]] = Counter()
    with both_ways(cluster, api, make_namespace, tmp_path) as ways:

        def agree(thing: dict[str, Any], label: str | None) -> None:
            plain = outcome(api, thing, ways.namespaces["neither", label])
            expected = plain
            if isinstance(plain, dict):
                patch = mutate(objects.request(plain), namespace_managed=label == "true")
                expected = objects.patched(plain, patch)
                changed[thing["kind"], bool(patch)] += 1
            for way in ("policy", "webhook"):
                assert outcome(api, thing, ways.namespaces[way, label]) == expected, (way, thing)

        for thing in objects.one_thing_at_a_time():
            for label in (None, "true"):
                agree(thing, label)

        settings(
            max_examples=300, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        )(given(objects.anything(), st.sampled_from((*LABELS, "true")))(agree))()  # fmt: skip
    for kind in objects.API_VERSIONS:  # else the agreement is about nothing
        assert changed[kind, True] >= 10, changed
        assert changed[kind, False] >= 10, changed
