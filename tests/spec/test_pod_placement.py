"""Where a pod may run, in Kubernetes' own fields, read from scenarios and from an API server's JSON."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import messages, scenario
from tidemill.model.errors import SpecError
from tidemill.model.labels import Expression, Toleration
from tidemill.model.pods import PodShape, PodTerm, Spread
from tidemill.spec import names
from tidemill.spec.pod_placement import MATCHES_NOTHING, pod_shape_from_api

ZONE, HOST = names.LABEL_ZONE, names.LABEL_HOSTNAME
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUESTS = ((names.CPU, 1000),)


def read_pod(labels: dict[str, str] | None = None, **spec: Any) -> PodShape:
    pod = {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"name": "c"}], **spec}}
    return pod_shape_from_api(pod, REQUESTS)


def test_a_pod_without_rules_has_only_its_requests() -> None:
    assert read_pod() == PodShape(requests=REQUESTS)


def test_reads_selector_labels_and_tolerations() -> None:
    shape = read_pod(
        {"b": "2", "a": "1"},
        nodeSelector={"tier": "train"},
        tolerations=[
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
    )
    assert shape.labels == (("a", "1"), ("b", "2"))
    assert shape.node_selector == (("tier", "train"),)
    assert shape.tolerations == (
        Toleration("nvidia.com/gpu", "Exists"),
        Toleration("k", "Equal", "v", "NoExecute"),
    )


def test_reads_node_affinity() -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["ip-1"]}]}
    shape = read_pod(
        affinity={
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [term, named, {}]},
                PREFERRED: [{"weight": 7, "preference": term}, {"weight": 9, "preference": {}}],
            }
        }
    )
    in_zone = (Expression(ZONE, "In", ("a", "b")),)
    assert shape.node_terms == (in_zone, (Expression(HOST, "In", ("ip-1",)),), MATCHES_NOTHING)
    assert shape.preferred_nodes == ((7, in_zone),)


def test_reads_pod_affinity_and_anti_affinity() -> None:
    term = {
        "topologyKey": ZONE,
        "labelSelector": {
            "matchLabels": {"app": "db"},
            "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}],
        },
        "namespaces": ["data"],
    }
    mine = {
        "topologyKey": HOST,
        "labelSelector": {},
        "matchLabelKeys": ["rev"],
        "mismatchLabelKeys": ["team"],
    }
    shape = read_pod(
        {"rev": "2", "team": "blue"},
        affinity={
            "podAffinity": {REQUIRED: [term], PREFERRED: [{"weight": 3, "podAffinityTerm": mine}]},
            "podAntiAffinity": {
                REQUIRED: [{"topologyKey": HOST}],
                PREFERRED: [{"weight": 4, "podAffinityTerm": term}],
            },
        },
    )
    db = PodTerm(ZONE, (Expression("app", "In", ("db",)), Expression("canary", "DoesNotExist")), ("data",))
    assert shape.affinity == (db,)
    own = (Expression("rev", "In", ("2",)), Expression("team", "NotIn", ("blue",)))
    assert shape.preferred_affinity == ((3, PodTerm(HOST, own)),)
    assert shape.anti_affinity == (PodTerm(HOST, MATCHES_NOTHING),)
    assert shape.preferred_anti_affinity == ((4, db),)


def test_reads_topology_spread() -> None:
    hard = {
        "maxSkew": 2,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "minDomains": 3,
        "matchLabelKeys": ["rev"],
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    soft = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}
    shape = read_pod(topologySpreadConstraints=[hard, soft])
    assert shape.spread == (
        Spread(ZONE, (Expression("app", "In", ("x",)),), 2, True, 3, ("rev",), False, True),
        Spread(HOST, MATCHES_NOTHING, 1, False),
    )


def test_reads_the_host_ports_of_all_containers() -> None:
    shape = read_pod(
        containers=[
            {"ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]},
            {"ports": [{"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
        ]
    )
    assert shape.host_ports == (("TCP", 8080, ""), ("UDP", 53, "10.0.0.1"))


def node_terms(*expressions: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


AT_EXPRESSION = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            {"affinity": node_terms({"key": "a", "operator": "in"})},
            f"{AT_EXPRESSION}.operator: must be 'In', 'NotIn', 'Exists', 'DoesNotExist', 'Gt' or 'Lt'",
        ),
        (
            {"affinity": node_terms({"key": "a", "operator": "In"})},
            f"{AT_EXPRESSION}: In needs at least one of 'values'",
        ),
        (
            {"affinity": node_terms({"key": "a", "operator": "Gt", "values": ["x"]})},
            f"{AT_EXPRESSION}: Gt needs exactly one whole number in 'values'",
        ),
        (
            {"affinity": node_terms({"key": "a", "operator": "Exists", "values": ["x"]})},
            f"{AT_EXPRESSION}: Exists takes no 'values'",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ""}]}}},
            f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey: must not be empty",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z", "namespaceSelector": {}}]}}},
            (
                f"spec.affinity.podAffinity.{REQUIRED}[0]: 'namespaceSelector' is not supported yet;"
                " list the 'namespaces' by name"
            ),
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}]},
            (
                "spec.topologySpreadConstraints[0].maxSkew: must be greater than or equal to 1;"
                " spec.topologySpreadConstraints[0].whenUnsatisfiable: is missing"
            ),
        ),
        (
            {"tolerations": [{"operator": "Equal"}]},
            "spec.tolerations[0]: without a 'key' the operator must be Exists",
        ),
        (
            {"tolerations": [{"key": "a", "newField": 1}]},
            "spec.tolerations[0].newField: is not supported",
        ),
    ],
)
def test_names_the_path_of_a_pod_field_that_is_not_supported(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_pod(**spec)
    assert str(caught.value) == complaint


# --- in a scenario --------------------------------------------------------------------------------------


def service(*lines: str) -> str:
    """Its own lines begin at line 10."""
    head = ["services:", "  - name: chat", "    replicas: 3", "    gpus: 1"]
    return scenario(*head, *(f"    {line}" for line in lines))


def test_a_service_in_a_scenario_may_use_all_placement_fields(read: Reader) -> None:
    text = service(
        "labels: {app: chat}",
        "affinity:",
        "  podAntiAffinity:",
        f"    {REQUIRED}:",
        "      - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: chat}}}",
        "topologySpreadConstraints:",
        "  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}",
        "tolerations: [{key: team, operator: Exists}]",
        "hostPorts: [{hostPort: 8080}]",
    )
    assert messages(read(text)) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["affinity: {podAntiAfinity: {}}"],
            (
                "a.yaml:10:18: unknown key 'podAntiAfinity' in Scenario.spec.services[0].affinity;"
                " did you mean 'podAntiAffinity'?"
            ),
        ),
        (
            ["topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}]"],
            (
                "a.yaml:10:86: services[0].topologySpreadConstraints[0].whenUnsatisfiable cannot be 'Never';"
                " valid: DoNotSchedule, ScheduleAnyway"
            ),
        ),
        (
            ["hostPorts: [{hostPort: 70000}]"],
            "a.yaml:10:30: services[0].hostPorts[0].hostPort must be at most 65535",
        ),
        (
            ["tolerations: [{operator: Equal}]"],
            "a.yaml:10:21: services[0].tolerations[0]: without a 'key' the operator must be Exists",
        ),
        (["labels: {app: 7}"], "a.yaml:10:21: services[0].labels.app must be text: put it in quotes, '7'"),
    ],
)
def test_reports_the_line_of_a_wrong_placement_in_a_scenario(
    read: Reader, lines: list[str], expected: str
) -> None:
    assert messages(read(service(*lines))) == [expected]
