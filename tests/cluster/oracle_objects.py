"""Packing problems as objects of Kubernetes, many side by side in one cluster and strangers to each other.

A problem is told apart by its *realm*: its namespaces have the realm in their names, and its label keys have it at
their end (`topology.kubernetes.io/zone-c12`), so that nodes of another realm are not its domains: kube-scheduler gives
no key a meaning of its own when it filters. Pods are kept in their realm, and on a node, by resources that only those
nodes have: a selector or a taint would change which domains a spread counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.decide.packer.problem import ExistingNode, NodeOption
from tidemill.model.labels import Selector, Taint
from tidemill.model.pods import PodShape, PodTerm, Spread
from tidemill.spec.names import LABEL_HOSTNAME, LABEL_ZONE

Object = dict[str, Any]
PIN = "oracle.example.com"
_PLENTY = "1000"


@dataclass(frozen=True, slots=True)
class Realm:
    name: str  # "c12"
    batch: str  # of whom everything is deleted together
    home: str  # in the names of its namespaces; realms of one home have no node in common

    def namespace(self, name: str) -> str:
        return f"{self.home}-{name}"

    def key(self, key: str) -> str:
        return f"{key}-{self.name}"

    # --- nodes --------------------------------------------------------------------------------------

    def existing_node(self, node: ExistingNode, planned: int) -> Object:
        """What is free beside its pods, and its pods' requests: that is what it can allocate."""
        room = dict(node.free)
        for pods in node.existing_pods:
            for resource, wanted in pods.shape.requests:
                room[resource] = room.get(resource, 0) + wanted * pods.count
            room["pods"] = room.get("pods", 0) + pods.count
        return self._node(node.name, node.labels, room, node.taints, planned)

    def opened_node(self, name: str, option: NodeOption, planned: int) -> Object:
        return self._node(name, option.labels, option.capacity, option.taints, planned)

    def _node(
        self,
        name: str,
        labels: Mapping[str, str],
        room: Mapping[str, int],
        taints: Sequence[Taint],
        planned: int,
    ) -> Object:
        own = {self.key(key): value for key, value in labels.items()}
        own |= {self.key(LABEL_HOSTNAME): name, "batch": self.batch}
        amounts = {resource: _quantity(resource, amount) for resource, amount in room.items()}
        amounts |= {self._pin(name): str(planned), self._pin(): _PLENTY}
        spec = {"taints": [_taint(taint, self.key(taint.key)) for taint in taints]}
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return {"metadata": {"name": f"{self.name}-{name}", "labels": own}, "spec": spec, "status": status}

    def _pin(self, node: str = "") -> str:
        """A resource that only this node has, or only nodes of this realm."""
        return f"{PIN}/{self.name}-{node or 'realm'}"

    # --- pods ---------------------------------------------------------------------------------------

    def pod(
        self, name: str, namespace: str, shape: PodShape, *, pinned_to: str = "", bound_to: str = ""
    ) -> Object:
        """`pinned_to`: only this node has what it needs; `bound_to`: it is there without being asked about."""
        amounts = {resource: _quantity(resource, amount) for resource, amount in shape.requests}
        if not bound_to:
            amounts[self._pin()] = "1"
        if pinned_to:
            amounts[self._pin(pinned_to)] = "1"
        container: Object = {
            "name": "one",
            "image": "none",
            "resources": {"requests": amounts, "limits": amounts},
        }
        if shape.host_ports:
            container["ports"] = [
                {
                    "containerPort": port,
                    "hostPort": port,
                    "protocol": protocol,
                    **({"hostIP": ip} if ip else {}),
                }
                for protocol, port, ip in shape.host_ports
            ]
        spec: Object = {
            "containers": [container],
            "nodeSelector": {self.key(key): value for key, value in shape.node_selector},
            "tolerations": [
                {"operator": one.operator, **({"key": self.key(one.key)} if one.key else {}),
                 **({"value": one.value} if one.value else {}), **({"effect": one.effect} if one.effect else {})}
                for one in shape.tolerations
            ],
            "affinity": self._affinity(shape),
            "topologySpreadConstraints": [self._spread(one) for one in shape.spread],
            "terminationGracePeriodSeconds": 0,
            "enableServiceLinks": False,
        }  # fmt: skip
        if shape.volume_zones:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        if bound_to:
            spec["nodeName"] = f"{self.name}-{bound_to}"
        labels = {**dict(shape.labels), "batch": self.batch}
        return {
            "metadata": {"name": name, "namespace": self.namespace(namespace), "labels": labels},
            "spec": spec,
        }

    def _affinity(self, shape: PodShape) -> Object:
        found: Object = {}
        if shape.node_terms:
            terms = [{"matchExpressions": self._expressions(term)} for term in shape.node_terms]
            found["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        for kind, pod_terms in (("podAffinity", shape.affinity), ("podAntiAffinity", shape.anti_affinity)):
            if pod_terms:
                written = [self._pod_term(term) for term in pod_terms]
                found[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": written}
        return found

    def _pod_term(self, term: PodTerm) -> Object:
        written: Object = {
            "topologyKey": self.key(term.topology_key),
            "labelSelector": _label_selector(term.selector),
        }
        if term.namespaces:
            written["namespaces"] = [self.namespace(name) for name in term.namespaces]
        return written

    def _spread(self, spread: Spread) -> Object:
        written: Object = {
            "topologyKey": self.key(spread.topology_key),
            "labelSelector": _label_selector(spread.selector),
            "maxSkew": spread.max_skew,
            "whenUnsatisfiable": "DoNotSchedule" if spread.hard else "ScheduleAnyway",
            "nodeAffinityPolicy": "Honor" if spread.honor_affinity else "Ignore",
            "nodeTaintsPolicy": "Honor" if spread.honor_taints else "Ignore",
        }
        if spread.hard:
            written["minDomains"] = spread.min_domains
        if spread.match_label_keys:
            written["matchLabelKeys"] = list(spread.match_label_keys)
        return written

    def _expressions(self, selector: Selector) -> list[Object]:
        return [_expression(one.operator, self.key(one.key), one.values) for one in selector]

    # --- volumes ------------------------------------------------------------------------------------

    def volume(self, name: str, namespace: str, zones: Sequence[str]) -> tuple[Object, Object]:
        """A volume that can be reached from these zones and the claim that is bound to it."""
        claim, where = f"{self.name}-{namespace}-{name}", self.namespace(namespace)
        shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        terms = [{"matchExpressions": [_expression("In", self.key(LABEL_ZONE), zones)]}]
        volume = {
            "metadata": {"name": claim, "labels": {"batch": self.batch}},
            "spec": {
                **shared, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"},
                "claimRef": {"namespace": where, "name": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }  # fmt: skip
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        claims = {
            "metadata": {"name": name, "namespace": where, "annotations": bound},
            "spec": {**shared, "volumeName": claim, "resources": {"requests": {"storage": "1Gi"}}},
        }
        return volume, claims


def _taint(taint: Taint, key: str) -> Object:
    return {"key": key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}


def _label_selector(selector: Selector) -> Object:
    """Labels of pods, which belong to one realm by their namespace: their keys stay as they are."""
    return {"matchExpressions": [_expression(one.operator, one.key, one.values) for one in selector]}


def _expression(operator: str, key: str, values: Sequence[str]) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)
