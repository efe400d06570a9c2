"""Random but possible worlds, for properties: nodes in any phase, and work that runs or waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, PHASES, ago, ahead, spec, world
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Expression
from tidemill.model.nodes import Node
from tidemill.model.pods import DisruptionBudget, Method, Pod, PodTerm, Spread, Workload
from tidemill.model.world import World
from tidemill.spec import names
from tidemill.spec.node_class import NodeClass

CAPS = {"maxHourlyUsd": 300, "maxMonthlyUsd": 40_000}
IMAGE = {"metadata": {"name": "gpu"}, "spec": {"amiSelectorTerms": [{"alias": "al2023@v20261201"}]}}
DOCUMENTS = spec(
    given.pool(limits={"nodes": 8}, sources=[{"type": "block"}, {"type": "on-demand", **CAPS}], warm=2),
    given.hourly_pool(
        "g6",
        limits={"gpus": 20},
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "1m",
            "budgets": [{"nodes": "50%"}, {"nodes": "1", "schedule": "30 11 * * *", "duration": "40m"}],
        },
    ),
    budget={"monthlyUsd": 60_000},
)
SPEC = replace(DOCUMENTS, node_classes={"gpu": NodeClass.model_validate(IMAGE)})
DURATIONS = st.sampled_from(("30s", "5m", "40m", "3h", "30h"))


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    for place in range(draw(st.integers(0, 5))):
        on_block = draw(st.booleans())
        fields: dict[str, Any] = {"source": Source(SourceKind.BLOCK, draw(st.sampled_from(("cr-1", "cr-2"))))}
        if not on_block:
            fields = {"source": ON_DEMAND, "pool": "g6", "instance_type": "g6.12xlarge"}
        phase = draw(st.sampled_from(PHASES))
        age = draw(st.sampled_from(("1m", "4m", "9m", "14m")))
        check = (
            draw(st.sampled_from(("", "running", "passed", "failed")))
            if phase in ("verifying", "ready")
            else ""
        )
        owner = draw(st.sampled_from(("tides", "tides", "tides", "somebody")))
        if phase != "launched":
            fields["check"] = check
            made_from = draw(st.sampled_from(("", "", "", "", "", "0ld1mage")))
            fields["labels"] = {names.LABEL_NODE_CLASS: made_from} if made_from else {}
            if on_block:
                fields["ends_at"] = draw(st.sampled_from((None, None, None, ahead("5m"), ahead("20h"))))
        made.append(given.node(f"i-{place}", phase, launched=age, joined=age, owner=owner, **fields))
    return made


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "grace": draw(st.sampled_from(("30s", "10m"))),
        "overflow": draw(st.booleans()),
        "priority": draw(st.integers(0, 2)),
    }
    if draw(st.booleans()):
        drawn["expected"] = draw(DURATIONS)
    if draw(st.booleans()):
        drawn |= {"checkpoint_every": "30m", "checkpoint_time": "4m", "load": "5m"}
    return drawn


CHAT = (Expression("app", "In", ("chat",)),)
RULES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"anti_affinity": (PodTerm(names.LABEL_HOSTNAME, CHAT),)},
    {"spread": (Spread(names.LABEL_ZONE, CHAT),)},
    {"affinity": (PodTerm(names.LABEL_ZONE, CHAT),)},
    {"host_ports": (("TCP", 8080, ""),)},
)


@st.composite
def pods(draw: st.DrawFn, there: list[Node]) -> list[Pod]:
    made: list[Pod] = []
    up = [one for one in there if one.kube is not None and one.kube.ready]
    for place in range(draw(st.integers(0, 6))):
        fields = {"gpus": draw(st.sampled_from((0, 1, 4, 8))), **draw(terms())}
        here = draw(st.none() | st.sampled_from(up)) if up else None
        if draw(st.booleans()):
            made.append(given.pod(f"job-{place}", on=here, created_at=ago(draw(DURATIONS)), **fields))
        else:
            one = given.replica(f"chat-{place}", on=here, **fields)
            rules = draw(st.sampled_from(RULES))
            made.append(replace(one, shape=replace(one.shape, labels=(("app", "chat"),), **rules)))
    for place in range(draw(st.integers(0, 2))):
        size = draw(st.integers(2, 3))
        members = given.gang(f"gang-{place}", size, **draw(terms()))
        made.extend(members[: draw(st.integers(1, size))])
    return made


@st.composite
def worlds(draw: st.DrawFn) -> World:
    there = draw(nodes())
    blocks = [
        given.block(
            id,
            ends_in=draw(st.sampled_from(("35m", "55m", "70m", "5h", "50h"))),
            free=draw(st.integers(0, 2)),
        )
        for id in draw(st.sampled_from(((), ("cr-1",), ("cr-1", "cr-2"))))
    ]
    launches = draw(
        st.lists(
            st.sampled_from(
                (
                    given.launch_intent("ti-a"),
                    given.launch_intent("ti-b", written_at=ago("9m")),
                    given.launch_intent(
                        "ti-c", pool="g6", source=ON_DEMAND, instance_type="g6.12xlarge", count=2
                    ),
                    given.failed_launch("ti-d", at=ago("10s")),
                    given.failed_launch(
                        "ti-e", pool="g6", source=ON_DEMAND, instance_type="g6.xlarge", at=ago("20s")
                    ),
                )
            ),
            unique=True,
            max_size=3,
        )
    )
    budgets = [DisruptionBudget("Deployment/chat", 1, draw(st.integers(0, 2)))] if draw(st.booleans()) else []
    return world(blocks, there, draw(pods(there)), launches, budgets, draw(services()))


@st.composite
def services(draw: st.DrawFn) -> list[Workload]:
    """Nothing, or the Deployment of the replicas, in the middle of anything, and perhaps the one it is paired with."""
    if draw(st.booleans()):
        return []
    one = given.replica("chat", gpus=draw(st.sampled_from((1, 8))))
    made = Workload(
        "Deployment/chat",
        "ml",
        replicas=draw(st.integers(0, 4)),
        ready=draw(st.integers(0, 3)),
        shape=one.shape,
        terms=one.terms,
        method=draw(st.sampled_from((None, *Method))),
        max_surge=draw(st.integers(0, 2)),
        max_unavailable=draw(st.integers(0, 1)),
        may_scale=draw(st.booleans()),
        pair=draw(st.sampled_from(("", "Deployment/green"))),
        added=draw(st.integers(0, 2)),
        rolling=draw(st.booleans()),
    )
    pair = replace(made, name="Deployment/green", pair=made.name, added=0, rolling=False)
    pair = replace(pair, shape=replace(pair.shape, node_selector=((names.LABEL_POOL, "g6"),)))
    return [made, *([pair] if draw(st.booleans()) else [])]
