"""Where a pod may and prefers to run, in Kubernetes' own field names, and the PodShape that follows from it.

It reads the jobs and services of a scenario, and pods as an API server returns them (`pod_shape_from_api`). It does not
read requests and times: those are written differently in the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from tidemill.model.errors import SpecError
from tidemill.model.labels import Expression, Pairs, Selector, Toleration
from tidemill.model.pods import PodShape, PodTerm, Spread
from tidemill.model.resources import Amounts
from tidemill.spec import names
from tidemill.spec.document import Model
from tidemill.spec.located_yaml import path_text
from tidemill.spec.units import Count

_INTEGER = re.compile(r"[+-]?[0-9]+")


def _written(key: str) -> str:
    if not key:
        raise ValueError("must not be empty")
    return key


Key = Annotated[str, AfterValidator(_written)]
# A selector that is not given selects no pod; an empty selector selects every pod.
MATCHES_NOTHING: Selector = (Expression("", "In"),)


# --- the fields ----------------------------------------------------------------------------------------


class LabelRequirement(Model):
    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()
    """At least one for In and NotIn, none for the others."""

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> LabelRequirement:
        _check_values(self.operator, self.values)
        return self


class NodeRequirement(Model):
    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()
    """Of Gt and Lt: one whole number, in quotes."""

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> NodeRequirement:
        _check_values(self.operator, self.values)
        return self


def _check_values(operator: str, values: tuple[str, ...]) -> None:
    if operator in ("In", "NotIn") and not values:
        raise ValueError(f"{operator} needs at least one of 'values'")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ValueError(f"{operator} takes no 'values'")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        raise ValueError(f"{operator} needs exactly one whole number in 'values'")


class LabelSelector(Model):
    """Selects pods by labels: all conditions must hold. An empty selector (`{}`) selects every pod."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class NodeSelectorTerm(Model):
    """Selects nodes by labels: all conditions must hold. An empty term selects no node."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()
    """Only `metadata.name`, which is read as the host name label of the node."""

    @model_validator(mode="after")
    def _knows_one_field(self) -> NodeSelectorTerm:
        for requirement in self.match_fields:
            if requirement.key != "metadata.name":
                raise ValueError("'matchFields' supports only the key metadata.name")
        return self


class NodeSelector(Model):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1)
    """At least one term must hold."""


class PreferredNodes(Model):
    weight: Count = Field(ge=1, le=100)
    preference: NodeSelectorTerm


class NodeAffinity(Model):
    required: NodeSelector | None = Field(
        default=None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredNodes, ...] = Field(
        default=(), alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Model):
    """Selects other pods, and the topology domain in which to be with them or apart from them."""

    topology_key: Key
    """Such as `topology.kubernetes.io/zone` or `kubernetes.io/hostname`."""
    label_selector: LabelSelector | None = None
    """Not given: no pod."""
    namespaces: tuple[str, ...] = ()
    """Empty: the pod's own namespace."""
    namespace_selector: LabelSelector | None = None
    """Not supported yet; list `namespaces`."""
    match_label_keys: tuple[str, ...] = ()
    """Only pods with the same value of these labels."""
    mismatch_label_keys: tuple[str, ...] = ()
    """Only pods with another value of these labels."""

    @model_validator(mode="after")
    def _names_its_namespaces(self) -> PodAffinityTerm:
        if self.namespace_selector is not None:
            raise ValueError("'namespaceSelector' is not supported yet; list the 'namespaces' by name")
        return self


class PreferredPods(Model):
    weight: Count = Field(ge=1, le=100)
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Model):
    required: tuple[PodAffinityTerm, ...] = Field(
        default=(), alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredPods, ...] = Field(
        default=(), alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Model):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    """Run where the selected pods run."""
    pod_anti_affinity: PodAffinity = PodAffinity()
    """Run where the selected pods do not run."""


class TopologySpreadConstraint(Model):
    """How evenly pods are spread over the values of a node label (topology domains)."""

    max_skew: Count = Field(ge=1)
    """How many more pods a domain may have than the domain with the fewest."""
    topology_key: Key
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """DoNotSchedule is a rule, ScheduleAnyway a preference."""
    label_selector: LabelSelector | None = None
    """Which pods count. Not given: none."""
    min_domains: Count | None = Field(default=None, ge=1)
    """With fewer domains than this, the smallest number of pods counts as 0. Only with DoNotSchedule."""
    match_label_keys: tuple[str, ...] = ()
    """Only pods with the same value of these labels count."""
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    """Honor: only nodes that the pod's node selector and affinity allow count."""
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    """Honor: only nodes whose taints the pod tolerates count."""

    @model_validator(mode="after")
    def _min_domains_only_for_rules(self) -> TopologySpreadConstraint:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("'minDomains' is only allowed with whenUnsatisfiable: DoNotSchedule")
        return self


class TolerationSpec(Model):
    key: str = ""
    """Empty, with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Not given: every effect."""
    toleration_seconds: Count | None = None
    """Accepted and ignored: no pod is evicted for a NoExecute taint."""

    @model_validator(mode="after")
    def _is_valid(self) -> TolerationSpec:
        if not self.key and self.operator != "Exists":
            raise ValueError("without a 'key' the operator must be Exists")
        if self.operator == "Exists" and self.value:
            raise ValueError("Exists takes no 'value'")
        return self


class HostPort(Model):
    host_port: Count = Field(ge=1, le=65535)
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    host_ip: str = Field(default="", alias="hostIP")
    """Empty: every address of the node."""


class Placement(Model):
    """Where a pod may run, in Kubernetes' own fields."""

    labels: dict[str, str] = {}
    """Labels of the pod, which the selectors of other pods match."""
    node_selector: dict[str, str] = {}
    """Labels that its node must have."""
    affinity: Affinity = Affinity()
    """Rules and preferences about nodes and other pods."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """How evenly such pods are spread over zones, hosts or other labels."""
    tolerations: tuple[TolerationSpec, ...] = ()
    """Taints that it tolerates."""
    host_ports: tuple[HostPort, ...] = ()
    """Ports of its node that it uses."""


# --- as a PodShape --------------------------------------------------------------------------------------


def pod_shape(written: Placement, requests: Amounts) -> PodShape:
    own, affinity = written.labels, written.affinity
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    nodes = affinity.node_affinity
    return PodShape(
        requests=requests,
        node_selector=_pairs(written.node_selector),
        tolerations=tuple(
            Toleration(toleration.key, toleration.operator, toleration.value, toleration.effect or "")
            for toleration in written.tolerations
        ),
        labels=_pairs(own),
        node_terms=tuple(_node_term(term) for term in nodes.required.node_selector_terms)
        if nodes.required
        else (),
        # An empty preference is no preference, unlike an empty requirement.
        preferred_nodes=tuple(
            (preferred.weight, _node_term(preferred.preference))
            for preferred in nodes.preferred
            if preferred.preference != NodeSelectorTerm()
        ),
        affinity=tuple(_pod_term(term, own) for term in together.required),
        anti_affinity=tuple(_pod_term(term, own) for term in apart.required),
        preferred_affinity=tuple(_weighted_terms(together.preferred, own)),
        preferred_anti_affinity=tuple(_weighted_terms(apart.preferred, own)),
        spread=tuple(_spread(constraint) for constraint in written.topology_spread_constraints),
        host_ports=tuple((port.protocol, port.host_port, port.host_ip) for port in written.host_ports),
    )


def _pairs(labels: Mapping[str, str]) -> Pairs:
    return tuple(sorted(labels.items()))


def _node_term(term: NodeSelectorTerm) -> Selector:
    by_label = (Expression(label.key, label.operator, label.values) for label in term.match_expressions)
    by_name = (Expression(names.LABEL_HOSTNAME, name.operator, name.values) for name in term.match_fields)
    return (*by_label, *by_name) or MATCHES_NOTHING


def _selector(written: LabelSelector | None) -> Selector:
    if written is None:
        return MATCHES_NOTHING
    labels = (Expression(key, "In", (value,)) for key, value in sorted(written.match_labels.items()))
    return (
        *labels,
        *(Expression(label.key, label.operator, label.values) for label in written.match_expressions),
    )


def _pod_term(term: PodAffinityTerm, own: Mapping[str, str]) -> PodTerm:
    """matchLabelKeys and mismatchLabelKeys refer to the pod's own values; a label that it does not have is ignored."""
    same = (Expression(key, "In", (own[key],)) for key in term.match_label_keys if key in own)
    other = (Expression(key, "NotIn", (own[key],)) for key in term.mismatch_label_keys if key in own)
    selector = (*_selector(term.label_selector), *same, *other)
    return PodTerm(term.topology_key, selector, tuple(sorted(term.namespaces)))


def _weighted_terms(
    written: Iterable[PreferredPods], own: Mapping[str, str]
) -> Iterator[tuple[int, PodTerm]]:
    for preferred in written:
        yield preferred.weight, _pod_term(preferred.pod_affinity_term, own)


def _spread(written: TopologySpreadConstraint) -> Spread:
    return Spread(
        topology_key=written.topology_key,
        selector=_selector(written.label_selector),
        max_skew=written.max_skew,
        hard=written.when_unsatisfiable == "DoNotSchedule",
        min_domains=written.min_domains or 1,
        match_label_keys=written.match_label_keys,
        honor_affinity=written.node_affinity_policy == "Honor",
        honor_taints=written.node_taints_policy == "Honor",
    )


# --- pods of an API server -------------------------------------------------------------------

_POD_KEYS = ("nodeSelector", "affinity", "topologySpreadConstraints", "tolerations")


def pod_shape_from_api(pod: Mapping[str, Any], requests: Amounts) -> PodShape:
    """The shape of a pod given as plain JSON. Raises SpecError with the path of every field that is not supported.

    Fields that have nothing to do with placement are ignored. An unknown placement field is an error: a rule that is
    not supported must not be ignored.
    """
    spec = pod.get("spec", {})
    written: dict[str, Any] = {key: spec[key] for key in _POD_KEYS if spec.get(key) is not None}
    written["labels"] = pod.get("metadata", {}).get("labels") or {}
    written["hostPorts"] = [
        {key: port[key] for key in ("hostPort", "protocol", "hostIP") if port.get(key)}
        for container in spec.get("containers", ())
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]
    try:
        return pod_shape(Placement.model_validate(written), requests)
    except ValidationError as error:
        raise SpecError("; ".join(_messages(error))) from None


def _messages(error: ValidationError) -> Iterator[str]:
    findings = error.errors(include_url=False)
    for finding in findings:
        path = tuple(finding["loc"])
        if finding["type"] == "too_short" and any(
            other["loc"][: len(path)] == path for other in findings if other is not finding
        ):
            continue  # the refused entries have their own errors
        plain = {"missing": "is missing", "extra_forbidden": "is not supported"}.get(finding["type"])
        reason = finding.get("ctx", {}).get("error") or finding["msg"].replace("Input should be", "must be")
        yield f"{path_text('metadata' if path[0] == 'labels' else 'spec', path)}: {plain or reason}"
