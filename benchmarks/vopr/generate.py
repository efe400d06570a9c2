"""A seed to the documents of a whole platform, and documents to the text of one file."""

from __future__ import annotations

import yaml

from benchmarks.vopr.capacity import drawn_plans, drawn_reservations, make_room
from benchmarks.vopr.draw import Draw, Json, instant, length
from benchmarks.vopr.mistakes import with_mistake
from benchmarks.vopr.pools import drawn_node_classes, drawn_pools
from benchmarks.vopr.site import Site, drawn_site
from benchmarks.vopr.spending import drawn_decisions, drawn_platform
from benchmarks.vopr.trouble import drawn_trouble
from benchmarks.vopr.workloads import drawn_jobs, drawn_services

Documents = list[Json]
MISTAKES = 0.1  # so many documents have one on purpose


def generate(seed: int, days: int = 30, *, mistakes: float = MISTAKES) -> Documents:
    """Platform, NodeClasses, ComputePools, CapacityPlans and a Scenario, as plain data."""
    draw = Draw(seed)
    site = drawn_site(draw, days)
    node_classes, pools = drawn_node_classes(site), drawn_pools(site)
    reservations = drawn_reservations(site)
    plans = drawn_plans(site)
    make_room(site, plans)
    scenario = _scenario(site, reservations)
    documents = [drawn_platform(site), *node_classes, *pools, *plans, scenario]
    return with_mistake(draw, documents) if draw.chance(mistakes) else documents


def _scenario(site: Site, reservations: list[Json]) -> Json:
    spec: Json = {"start": instant(site.start), "duration": length(days=site.days)}
    parts = {
        "reservations": reservations,
        "jobs": drawn_jobs(site),
        "services": drawn_services(site),
        "decisions": drawn_decisions(site),
    }
    spec |= {key: rows for key, rows in parts.items() if rows}
    spec |= drawn_trouble(site, reservations)
    return {
        "apiVersion": "tidemill.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "drawn"},
        "spec": spec,
    }


def as_text(documents: Documents, *comment: str) -> str:
    """One file, as a person could have written it."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment)
    return head + yaml.safe_dump_all(
        documents, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )
