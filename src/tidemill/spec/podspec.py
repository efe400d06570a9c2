"""Where a pod may and would rather run, in Kubernetes' own field names, and what that means as a PodShape.

One reading for whoever writes such fields: a scenario's jobs and services, and pods as an API server gives them
(`shape_of_pod`). It knows no requests and no time: those are written differently in the two places.
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
from tidemill.spec.document import place
from tidemill.spec.model import Model
from tidemill.spec.units import Count

_INTEGER = re.compile(r"[+-]?[0-9]+")


def _written(key: str) -> str:
    if not key:
        raise ValueError("must not be empty")
    return key


Key = Annotated[str, AfterValidator(_written)]
# A selector that is not written means nobody; one that is written and empty means everybody.
NOBODY: Selector = (Expression("", "In"),)


# --- as it is written -----------------------------------------------------------------------------------


class LabelRequirement(Model):
    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()
    """At least one for In and NotIn, none for the others."""

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> LabelRequirement:
        _judge_values(self.operator, self.values)
        return self


class NodeRequirement(Model):
    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()
    """Of Gt and Lt: one whole number, in quotes."""

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> NodeRequirement:
        _judge_values(self.operator, self.values)
        return self


def _judge_values(operator: str, values: tuple[str, ...]) -> None:
    if operator in ("In", "NotIn") and not values:
        raise ValueError(f"{operator} needs at least one of 'values'")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ValueError(f"{operator} takes no 'values'")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        raise ValueError(f"{operator} needs exactly one whole number in 'values'")


class LabelSelector(Model):
    """Pods, by their labels: all that is given must hold. An empty one (`{}`) means every pod."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class NodeSelectorTerm(Model):
    """Nodes, by their labels: all that is given must hold. An empty one means no node."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()
    """Of `metadata.name` alone, which is taken for the node's host name label."""

    @model_validator(mode="after")
    def _knows_one_field(self) -> NodeSelectorTerm:
        for one in self.match_fields:
            if one.key != "metadata.name":
                raise ValueError("'matchFields' can only be about metadata.name")
        return self


class NodeSelector(Model):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1)
    """One of them must hold."""


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
    """Other pods, and the kind of place in which to be with them or apart from them."""

    topology_key: Key
    """Such as `topology.kubernetes.io/zone` or `kubernetes.io/hostname`."""
    label_selector: LabelSelector | None = None
    """Not given: no pod at all."""
    namespaces: tuple[str, ...] = ()
    """None: the pod's own."""
    namespace_selector: LabelSelector | None = None
    """Not understood yet; list `namespaces`."""
    match_label_keys: tuple[str, ...] = ()
    """Only pods with the same value of these labels."""
    mismatch_label_keys: tuple[str, ...] = ()
    """Only pods with another value."""

    @model_validator(mode="after")
    def _names_its_namespaces(self) -> PodAffinityTerm:
        if self.namespace_selector is not None:
            raise ValueError("'namespaceSelector' is not understood yet; list the 'namespaces' by name")
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
    """Where those pods are."""
    pod_anti_affinity: PodAffinity = PodAffinity()
    """Where those pods are not."""


class TopologySpreadConstraint(Model):
    """How unevenly pods may be spread over the values of a node label."""

    max_skew: Count = Field(ge=1)
    """By how many pods one place may be ahead of the emptiest."""
    topology_key: Key
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """A rule, or a wish."""
    label_selector: LabelSelector | None = None
    """Which pods count. Not given: none."""
    min_domains: Count | None = Field(default=None, ge=1)
    """With fewer places than this, the emptiest counts as having none. Only with DoNotSchedule."""
    match_label_keys: tuple[str, ...] = ()
    """Only pods with the same value of these labels count."""
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    """Whether only nodes count that the pod's selector and affinity allow."""
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    """Whether only nodes count whose taints the pod tolerates."""

    @model_validator(mode="after")
    def _wishes_have_no_minimum(self) -> TopologySpreadConstraint:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("'minDomains' is only for whenUnsatisfiable: DoNotSchedule")
        return self


class TolerationSpec(Model):
    key: str = ""
    """Empty, with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """None: every effect."""
    toleration_seconds: Count | None = None
    """Read and not acted on: nothing is evicted for a NoExecute taint here."""

    @model_validator(mode="after")
    def _is_one(self) -> TolerationSpec:
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
    """What a pod says about where it runs, spelled as in Kubernetes."""

    labels: dict[str, str] = {}
    """What other pods' selectors see."""
    node_selector: dict[str, str] = {}
    """Labels its node must have."""
    affinity: Affinity = Affinity()
    """Rules and wishes about nodes, and about other pods."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """How evenly pods like it lie over zones, hosts or other labels."""
    tolerations: tuple[TolerationSpec, ...] = ()
    """Taints that do not keep it away."""
    host_ports: tuple[HostPort, ...] = ()
    """Ports of its node that it takes for itself."""


# --- what it means --------------------------------------------------------------------------------------


def shape_of(written: Placement, requests: Amounts) -> PodShape:
    own, affinity = written.labels, written.affinity
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    nodes = affinity.node_affinity
    return PodShape(
        requests=requests,
        node_selector=_pairs(written.node_selector),
        tolerations=tuple(
            Toleration(one.key, one.operator, one.value, one.effect or "") for one in written.tolerations
        ),
        labels=_pairs(own),
        node_terms=tuple(_node_term(one) for one in nodes.required.node_selector_terms)
        if nodes.required
        else (),
        # An empty preference is no preference, unlike an empty requirement.
        preferred_nodes=tuple(
            (one.weight, _node_term(one.preference))
            for one in nodes.preferred
            if one.preference != NodeSelectorTerm()
        ),
        affinity=tuple(_pod_term(one, own) for one in together.required),
        anti_affinity=tuple(_pod_term(one, own) for one in apart.required),
        preferred_affinity=tuple(_weighed(together.preferred, own)),
        preferred_anti_affinity=tuple(_weighed(apart.preferred, own)),
        spread=tuple(_spread(one) for one in written.topology_spread_constraints),
        host_ports=tuple((one.protocol, one.host_port, one.host_ip) for one in written.host_ports),
    )


def _pairs(labels: Mapping[str, str]) -> Pairs:
    return tuple(sorted(labels.items()))


def _node_term(term: NodeSelectorTerm) -> Selector:
    by_label = (Expression(one.key, one.operator, one.values) for one in term.match_expressions)
    by_name = (Expression(names.LABEL_HOSTNAME, one.operator, one.values) for one in term.match_fields)
    return (*by_label, *by_name) or NOBODY


def _selector(written: LabelSelector | None) -> Selector:
    if written is None:
        return NOBODY
    labels = (Expression(key, "In", (value,)) for key, value in sorted(written.match_labels.items()))
    return (*labels, *(Expression(one.key, one.operator, one.values) for one in written.match_expressions))


def _pod_term(term: PodAffinityTerm, own: Mapping[str, str]) -> PodTerm:
    """Keys to match or mismatch stand for the pod's own value; a label it does not have says nothing."""
    same = (Expression(key, "In", (own[key],)) for key in term.match_label_keys if key in own)
    other = (Expression(key, "NotIn", (own[key],)) for key in term.mismatch_label_keys if key in own)
    selector = (*_selector(term.label_selector), *same, *other)
    return PodTerm(term.topology_key, selector, tuple(sorted(term.namespaces)))


def _weighed(written: Iterable[PreferredPods], own: Mapping[str, str]) -> Iterator[tuple[int, PodTerm]]:
    for one in written:
        yield one.weight, _pod_term(one.pod_affinity_term, own)


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


# --- pods as an API server gives them -------------------------------------------------------------------

_POD_KEYS = ("nodeSelector", "affinity", "topologySpreadConstraints", "tolerations")


def shape_of_pod(pod: Mapping[str, Any], requests: Amounts) -> PodShape:
    """Of a pod as plain JSON; raises SpecError with the path of every field that cannot be understood.

    What has nothing to do with placement is not looked at; inside what has, an unknown field is an error: a rule
    that is not understood must not be taken for none.
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
        return shape_of(Placement.model_validate(written), requests)
    except ValidationError as error:
        raise SpecError("; ".join(_complaints(error))) from None


def _complaints(error: ValidationError) -> Iterator[str]:
    findings = error.errors(include_url=False)
    for finding in findings:
        path = tuple(finding["loc"])
        if finding["type"] == "too_short" and any(
            one["loc"][: len(path)] == path for one in findings if one is not finding
        ):
            continue  # the entries that were refused are told themselves
        plain = {"missing": "is missing", "extra_forbidden": "is not understood"}.get(finding["type"])
        reason = finding.get("ctx", {}).get("error") or finding["msg"].replace("Input should be", "must be")
        yield f"{place('metadata' if path[0] == 'labels' else 'spec', path)}: {plain or reason}"
