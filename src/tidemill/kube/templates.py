"""What of a pod its template decides: the shape the scheduler looks at, the terms, the gang. Read once per template.

Pods are of one template when these parts of them are equal, byte for byte. What a controller writes into each pod anew
(the name of its Job, its index) is left out, unless a selector of some pod mentions it: else every pod of a thousand
Jobs would be a class of its own. A template that cannot be read keeps its requests where those can be, and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec

from tidemill.kube.objects import NO_RAW, Container, Meta, PodSpec
from tidemill.kube.quantities import Asked, pod_requests
from tidemill.kube.selectors import with_namespaces
from tidemill.model.errors import SpecError
from tidemill.model.pods import PodShape, Terms
from tidemill.model.resources import Amounts
from tidemill.spec import names
from tidemill.spec.pod_placement import pod_shape_from_api
from tidemill.spec.units import parse_duration, parse_length

log = logging.getLogger("tidemill.kube.templates")

# Labels that controllers give to each pod, or to the pods of each Job. They are part of no template.
PER_POD = frozenset({
    "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name", "job-name",
    "batch.kubernetes.io/controller-uid", "controller-uid", "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index", "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/job-key",
    "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/replicatedjob-replicas",
    "training.kubeflow.org/job-name", "training.kubeflow.org/replica-index", names.GANG,
})  # fmt: skip
# Labels and annotations of ours that say what a pod is; those the engine writes (ends-at) are not among them.
SAID = (
    names.EXPECTED_DURATION, names.CHECKPOINT_TIME, names.CHECKPOINT_EVERY, names.LOAD_TIME, names.OVERFLOW,
    names.TEAM, names.DO_NOT_DISRUPT,
)  # fmt: skip
_MAX_TEMPLATES = 50_000
_MAX_VALUE = 256

Said = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    shape: PodShape
    terms: Terms
    unreadable: str = ""  # why; such a pod is never packed


class Templates:
    """Interning. `forget` when a label that was left out turns out to matter: everything is read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Template] = {}
        self._raws: dict[bytes, msgspec.Raw] = {}
        self._container_lists: dict[tuple[Any, ...], list[Container]] = {}
        self._left_out = PER_POD
        self._logged: set[str] = set()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._select_namespaces = False  # some template does
        self.generation = 0  # moves when templates must be read again

    def of(
        self, meta: Meta, spec: PodSpec, *, priority: int, zones: tuple[str, ...], said: Said, daemon: bool
    ) -> Template:
        """`said`: what the Job says for its template. Where a daemon pod may go is no matter: it has its node."""
        labels = meta.labels or {}
        kept = tuple(sorted((key, value) for key, value in labels.items() if key not in self._left_out))
        told = tuple(sorted(_said(meta, said).items()))
        raw = tuple(
            bytes(part)
            for part in (
                *(() if daemon else (spec.affinity, spec.tolerations, spec.topology_spread_constraints)),
                spec.overhead, spec.resources,
            )
        )  # fmt: skip
        containers = tuple((bytes(one.resources), bytes(one.ports)) for one in spec.containers or ())
        inits = tuple((bytes(one.resources), one.restart_policy) for one in spec.init_containers or ())
        selector = tuple(sorted((spec.node_selector or {}).items()))
        grace_s = spec.termination_grace_period_seconds
        key = (
            kept,
            told,
            raw,
            containers,
            inits,
            selector,
            grace_s,
            priority,
            zones,
            spec.active_deadline_seconds,
            daemon,
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_TEMPLATES:  # mostly of pods that are gone; the others are read again
                self._known.clear()
            self._note_mentions(raw)
            known = self._known[key] = self._read(kept, dict(told), spec, priority, zones, daemon, meta)
        return known

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """None: it is gone. Affinity may select namespaces by their labels."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        if self._select_namespaces:
            self.generation += 1
            self._known.clear()

    def shared(self, spec: PodSpec) -> None:
        """Raw parts point into the page they came with; an object that is kept shares them with its template's pods."""
        spec.affinity = self._raw(spec.affinity)
        spec.tolerations = self._raw(spec.tolerations)
        spec.topology_spread_constraints = self._raw(spec.topology_spread_constraints)
        spec.overhead, spec.resources = self._raw(spec.overhead), self._raw(spec.resources)
        spec.containers = self._containers(spec.containers)
        spec.init_containers = self._containers(spec.init_containers)
        spec.volumes = [
            one
            for one in spec.volumes or ()
            if one.persistent_volume_claim is not None or bytes(one.ephemeral)
        ] or None
        for volume in spec.volumes or ():
            volume.ephemeral = self._raw(volume.ephemeral)

    def _raw(self, raw: msgspec.Raw) -> msgspec.Raw:
        written = bytes(raw)
        if not written:
            return NO_RAW
        known = self._raws.get(written)
        if known is None:
            if len(self._raws) >= _MAX_TEMPLATES:
                self._raws.clear()
            known = self._raws[written] = msgspec.Raw(written)
        return known

    def _containers(self, containers: list[Container] | None) -> list[Container] | None:
        if not containers:
            return None
        key = tuple((bytes(one.resources), bytes(one.ports), one.restart_policy) for one in containers)
        known = self._container_lists.get(key)
        if known is None:
            if len(self._container_lists) >= _MAX_TEMPLATES:
                self._container_lists.clear()
            for one in containers:
                one.resources, one.ports = self._raw(one.resources), self._raw(one.ports)
            known = self._container_lists[key] = containers
        return known

    def _note_mentions(self, raw: tuple[bytes, ...]) -> None:
        """A selector that speaks of a label we leave out makes it matter, from now on and for all pods."""
        mentioned = {key for key in self._left_out if any(key.encode() in part for part in raw)}
        if mentioned:
            self._left_out -= mentioned
            self.generation += 1
            self._known.clear()

    def _read(
        self, labels: Any, said: Said, spec: PodSpec, priority: int, zones: tuple[str, ...], daemon: bool, meta: Meta
    ) -> Template:  # fmt: skip
        faults: list[str] = []
        terms = _terms(said, spec, priority, faults)
        try:
            requests = _requests(spec)
        except (ValueError, msgspec.DecodeError) as error:
            faults.append(f"its requests cannot be read: {error}")
            self._log(meta, faults)
            return Template(PodShape(labels=labels, volume_zones=zones), terms, faults[-1])
        try:
            shape = pod_shape_from_api(self._placement(labels, spec, daemon), requests)
        except (SpecError, msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
            faults.append(f"where it may run cannot be read: {error}")
            self._log(meta, faults)
            return Template(PodShape(requests, labels=labels, volume_zones=zones), terms, faults[-1])
        self._log(meta, faults)
        if zones:
            shape = replace(shape, volume_zones=zones)
        return Template(shape, terms)

    def _placement(self, labels: Any, spec: PodSpec, daemon: bool) -> dict[str, Any]:
        """As `pod_shape_from_api` takes it: plain JSON."""
        read: dict[str, Any] = {
            "containers": [{"ports": _plain(one.ports) or []} for one in _with_ports(spec)]
        }
        read["nodeSelector"] = spec.node_selector or {}
        if not daemon:
            read["affinity"], selects = with_namespaces(_plain(spec.affinity), self._namespaces)
            self._select_namespaces = self._select_namespaces or selects
            read["tolerations"] = _plain(spec.tolerations)
            read["topologySpreadConstraints"] = _plain(spec.topology_spread_constraints)
        return {"metadata": {"labels": dict(labels)}, "spec": read}

    def _log(self, meta: Meta, faults: list[str]) -> None:
        for fault in faults:
            if fault not in self._logged and len(self._logged) < 1000:
                self._logged.add(fault)
                log.warning("%s: %s", meta.full_name or "a template", fault)


def said_by(meta: Meta) -> Said:
    """What an object says of its pods: annotations come before labels."""
    both = {**(meta.labels or {}), **(meta.annotations or {})}
    return {key: both[key][:_MAX_VALUE] for key in SAID if key in both}


def _said(meta: Meta, default: Said) -> Said:
    own = said_by(meta)
    return {**default, **own} if default else own


# --- terms ----------------------------------------------------------------------------------------------


def _terms(said: Said, spec: PodSpec, priority: int, faults: list[str]) -> Terms:
    """A duration that cannot be read is as if it were not written, except where that is the unsafe side."""
    deadline_s = spec.active_deadline_seconds
    expected = _duration(said, names.EXPECTED_DURATION, faults)
    if expected is None and deadline_s is not None and deadline_s > 0:
        expected = timedelta(seconds=min(deadline_s, 10**9))
    grace_s = spec.termination_grace_period_seconds
    zero = timedelta(0)
    return Terms(
        grace=timedelta(seconds=30 if grace_s is None else min(max(grace_s, 0), 10**9)),
        expected=expected,
        checkpoint_time=_duration(said, names.CHECKPOINT_TIME, faults) or zero,
        checkpoint_every=_length(said, names.CHECKPOINT_EVERY, faults),
        load=_duration(said, names.LOAD_TIME, faults) or zero,
        overflow=said.get(names.OVERFLOW) == "true",
        do_not_disrupt=_do_not_disrupt(said, faults),
        priority=priority,
        team=said.get(names.TEAM, ""),
    )


def _duration(said: Said, key: str, faults: list[str]) -> timedelta | None:
    if key not in said:
        return None
    try:
        return parse_duration(said[key])
    except ValueError as error:
        faults.append(f"{key}: {error}")
        return None


def _length(said: Said, key: str, faults: list[str]) -> timedelta | None:
    if key not in said:
        return None
    try:
        return parse_length(said[key])
    except ValueError as error:
        faults.append(f"{key}: {error}")
        return None


def _do_not_disrupt(said: Said, faults: list[str]) -> bool | timedelta:
    written = said.get(names.DO_NOT_DISRUPT, "false")
    if written in ("true", "false", ""):
        return written == "true"
    protected = _length(said, names.DO_NOT_DISRUPT, faults)
    return True if protected is None else protected


# --- shape ----------------------------------------------------------------------------------------------


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


_resources = msgspec.json.Decoder(_Resources)
_amounts = msgspec.json.Decoder(dict[str, str | int | float] | None)


def _asked(raw: msgspec.Raw) -> Asked:
    if not bytes(raw):
        return None, None
    read = _resources.decode(raw)
    return _texts(read.requests), _texts(read.limits)


def _texts(written: Mapping[str, str | int | float] | None) -> dict[str, str] | None:
    """A template in a custom resource may write `cpu: 2` without quotes."""
    return {name: str(amount) for name, amount in written.items()} if written else None


def _requests(spec: PodSpec) -> Amounts:
    overhead = _amounts.decode(spec.overhead) if bytes(spec.overhead) else None
    return pod_requests(
        [_asked(one.resources) for one in spec.containers or ()],
        [(_asked(one.resources), one.restart_policy == "Always") for one in spec.init_containers or ()],
        _asked(spec.resources),
        _texts(overhead),
    )


def _with_ports(spec: PodSpec) -> list[Container]:
    return [one for one in (*(spec.containers or ()), *(spec.init_containers or ())) if bytes(one.ports)]


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw) if bytes(raw) else None
