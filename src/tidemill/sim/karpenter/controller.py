"""A small Karpenter in the simulated cluster: it launches nodes for pods that fit nowhere, and deletes empty nodes.

It knows what the real one knows: the NodePools and node classes it is given (`KubeObjects`), pods that the scheduler
could not place, and EC2. It launches through the simulated account, so that a block's slots, states and refusals are
the same for everybody. What Karpenter deletes forty minutes before a block's end is in `cloud.block_end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.errors import Gone, NoCapacity, OutcomeUnknown, PortError, Refused
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance, KubeNode
from tidemill.model.pods import Pod, PodShape
from tidemill.model.purchases import LaunchIntent
from tidemill.model.resources import Resources
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.cluster.scheduler_cache import pod_requests
from tidemill.sim.cluster.scheduler_filters import (
    insufficient,
    matches_node_affinity,
    reaches_volumes,
    untolerated_taint,
)
from tidemill.sim.karpenter.offerings import (
    NodePool,
    Object,
    Offering,
    capacity_of,
    offered_by_the_hour,
    offerings,
)
from tidemill.sim.karpenter.planned_pods import PlannedPods
from tidemill.sim.karpenter.room import Room
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import Spec, names
from tidemill.spec.platform import KarpenterRef

# Karpenter gathers pods for a second after the last one came, and ten at most.
_BATCH = timedelta(seconds=1)
# What had no capacity is not asked for again for so long.
_UNAVAILABLE = timedelta(minutes=3)
_ASKS_AGAIN_AFTER = timedelta(seconds=30)
_NEW_ENOUGH = "1.14.1"  # where the documents do not say which there is
_LOOKS_FOR_EMPTY_EVERY = timedelta(minutes=1)


_Coming = tuple[str, Offering, Resources]  # a name for it, what it is, what is free of it


@dataclass(slots=True)
class NodeClaim:
    """One instance it launched, from the call until EC2 takes it down."""

    instance_id: str
    pool: str
    offering: Offering
    deleting: bool = False


class SimKarpenter:
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        catalog: Catalog,
        cloud: SimCloud,
        cluster: SimCluster,
        zones: Sequence[str],
    ) -> None:
        self._timeline, self._journal, self._catalog = timeline, journal, catalog
        self._cloud, self._cluster, self._zones = cloud, cluster, tuple(zones)
        self._objects: dict[tuple[str, str], Object] = {}
        self._unavailable_until: dict[tuple[object, ...], datetime] = {}
        self._unanswered: dict[tuple[object, ...], str] = {}  # the token of a launch, by NodePool and place
        self._hourly: dict[tuple[object, ...], list[Offering]] = {}  # by NodePool, as it is written
        self._read: dict[str, tuple[Object, Object, NodePool]] = {}  # from these objects, by name
        self._room = Room(self._types_of, lambda: cluster.daemon_requests)
        self._kinds: dict[int, tuple[PodShape, int]] = {}  # by identity; equal shapes have one number
        self._numbers: dict[PodShape, int] = {}
        self._due = self._looking = self._retrying = False
        self._launched = 0
        self._planned: PlannedPods | None = None
        self.claims: dict[str, NodeClaim] = {}
        cluster.left_waiting.append(self._request_reconcile)
        cloud.on_instance.append(self._instance_changed)

    # --- KubeObjects --------------------------------------------------------------------------------

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """With the rules of the API server that a caller could break."""
        key = (wanted["kind"], wanted["metadata"]["name"])
        old = self._objects.get(key)
        if wanted["kind"] == "NodePool":
            static = "replicas" in wanted["spec"]
            if old is not None and static != ("replicas" in old["spec"]):
                raise Refused("Cannot transition NodePool between static and dynamic provisioning modes")
            if static and (set(wanted["spec"].get("limits", {})) - {"nodes"} or "weight" in wanted["spec"]):
                raise Refused("only 'limits.nodes' is supported on static NodePools, and no weight")
        self._objects[key] = wanted
        self._room.changed()
        self._journal.add("object-applied", f"{key[0]} {key[1]}", "changed" if old is not None else "made")
        self._request_reconcile()

    def remove(self, kind: str, name: str) -> None:
        if self._objects.pop((kind, name), None) is None:
            raise Gone(f"there is no {kind} {name}")
        self._journal.add("object-removed", f"{kind} {name}", "removed")
        if kind == "NodePool":
            for claim in [claim for claim in self.claims.values() if claim.pool == name]:
                self._delete(claim, f"its NodePool {name} was removed")

    def listed(self, kind: str) -> Sequence[Object]:
        found = [manifest for (of, _), manifest in sorted(self._objects.items()) if of == kind]
        return [self._with_status(manifest) for manifest in found] if kind == "NodePool" else found

    def _with_status(self, node_pool: Object) -> Object:
        name = node_pool["metadata"]["name"]
        has = capacity_of(self._types_of(name))
        return {**node_pool, "status": {"resources": {key: str(amount) for key, amount in has.items()}}}

    # --- when ---------------------------------------------------------------------------------------

    def _request_reconcile(self) -> None:
        if not self._due and self._objects:
            self._due = True
            self._timeline.after(_BATCH, self._reconcile)

    def _instance_changed(self, instance: Instance) -> None:
        gone = instance.state in INSTANCE_ENDED_STATES
        if gone and self.claims.pop(instance.id, None) is not None:
            self._room.changed()
            self._request_reconcile()

    def _reconcile(self) -> None:
        self._due = False
        pools = sorted(self._node_pools(), key=lambda pool: (-pool.weight, pool.name))
        try:
            self._keep_static([pool for pool in pools if pool.replicas is not None])
            self._provision([pool for pool in pools if pool.replicas is None])
        except PortError as trouble:  # throttled: EC2 could not be asked
            self._journal.add("karpenter-waits", "karpenter", str(trouble))
            self._retry_later()
        if any(pool.consolidate_after is not None for pool in pools):
            self._look_for_empty()

    def _node_pools(self) -> Iterator[NodePool]:
        """One whose node class is missing is not ready. They are looked at every minute, and seldom change."""
        for (kind, name), written in sorted(self._objects.items()) if self._objects else ():
            if kind != "NodePool":
                continue
            ref = written["spec"]["template"]["spec"]["nodeClassRef"]
            node_class = self._objects.get((ref["kind"], ref["name"]))
            if node_class is None:
                continue
            known = self._read.get(name)
            if known is None or known[0] is not written or known[1] is not node_class:
                known = self._read[name] = (written, node_class, NodePool.read(written, node_class))
            yield known[2]

    # --- for pods -----------------------------------------------------------------------------------

    def _provision(self, pools: Sequence[NodePool]) -> None:
        """Place pods onto nodes that are coming; then launch a node for each pod that is left, and fill it up."""
        self._planned = self._rules_about_pods()
        coming: list[_Coming] = []
        for claim in self._coming():
            self._expect(coming, claim.offering)
        hopeless: set[tuple[int, str]] = set()  # one of a kind is enough to know
        for pod in self._unschedulable():
            kind = (self._number_of(pod.shape), pod.pinned_to)
            if kind in hopeless or self._placed(pod, coming):
                continue
            made = self._launch_for(pod, pools)
            if made is None:
                hopeless.add(kind)
                continue
            self._expect(coming, made)
            self._placed(pod, coming)
        if hopeless:
            self._retry_later()

    def _number_of(self, shape: PodShape) -> int:
        """The same for equal shapes. Each object is hashed once: that takes longer than all the rest."""
        known = self._kinds.get(id(shape))
        if known is None:
            number = self._numbers.setdefault(shape, len(self._numbers))
            known = self._kinds[id(shape)] = (shape, number)
        return known[1]

    def _unschedulable(self) -> list[Pod]:
        """Pods for which the scheduler found no node; gated pods are left out."""
        waiting = (
            pod
            for pod in self._cluster.view().pods
            if not pod.node and not pod.gated and not pod.held_by_others and pod.deleting_until is None
        )
        return [pod for pod in waiting if pod.message]

    def _coming(self) -> list[NodeClaim]:
        """Launched, and not open to pods yet."""
        opened = {node.instance_id for node in self._cluster.view().nodes if _is_open(node)}
        return [claim for claim in self.claims.values() if claim.instance_id not in opened]

    def _rules_about_pods(self) -> PlannedPods | None:
        """None: no pod has ever had one, and nothing need be worked out."""
        return (
            PlannedPods(self._cluster.view(), self._timeline.now()) if self._cluster.pods_have_rules else None
        )

    def _expect(self, coming: list[_Coming], offering: Offering) -> None:
        name = f"coming-{len(coming)}"
        coming.append((name, offering, Resources(self._room.free(offering.kind))))
        if self._planned is not None:
            self._planned.add_node(name, offering.labels)

    def _placed(self, pod: Pod, coming: list[_Coming]) -> bool:
        for name, offering, free in coming:
            if _fits(pod, offering, free) and self._allowed(pod, name, offering):
                free.subtract_pod(pod.shape.requests)
                if self._planned is not None:
                    self._planned.place(pod, name)
                return True
        return False

    def _allowed(self, pod: Pod, name: str, offering: Offering) -> bool:
        return self._planned is None or self._planned.allows(pod, name, offering.labels)

    def _launch_for(self, pod: Pod, pools: Sequence[NodePool]) -> Offering | None:
        for pool in pools:
            if untolerated_taint(pod.shape.tolerations, pool.taints) is not None:
                continue
            for offering in self._offerings(pool):
                fits = _fits(pod, offering, self._room.free(offering.kind))
                if fits and self._allowed(pod, "new", offering) and self._launch_within(pool, offering):
                    return offering
        return None

    # --- launching ----------------------------------------------------------------------------------

    def _keep_static(self, pools: Sequence[NodePool]) -> None:
        for pool in pools:
            own = [claim for claim in self.claims.values() if claim.pool == pool.name]
            assert pool.replicas is not None
            for claim in own[pool.replicas :]:
                self._delete(claim, f"NodePool {pool.name} wants {pool.replicas}")
            missing = pool.replicas - len(own)
            while missing > 0 and any(
                self._launch_within(pool, offering) for offering in self._offerings(pool)[:1]
            ):
                missing -= 1
            if missing > 0:
                self._retry_later()

    def _launch_within(self, pool: NodePool, offering: Offering) -> bool:
        return self._room.allows(pool, offering.kind) and self._launch(pool, offering)

    def _types_of(self, pool: str) -> list[InstanceType]:
        return [claim.offering.kind for claim in self.claims.values() if claim.pool == pool]

    def _offerings(self, pool: NodePool) -> list[Offering]:
        now = self._timeline.now()
        key = (pool.name, pool.requirements, tuple(sorted(pool.labels.items())))
        if key not in self._hourly:
            self._hourly[key] = offered_by_the_hour(pool, self._catalog, self._zones)
        offered = offerings(pool, self._catalog, self._hourly[key], self._cloud.reservations(), now)
        return [offering for offering in offered if self._unavailable_until.get(_place(offering), now) <= now]

    def _launch(self, pool: NodePool, offering: Offering) -> bool:
        place = (pool.name, *_place(offering))
        tags: Pairs = tuple(sorted(pool.node_class.get("tags", {}).items()))
        # A call that was not answered is repeated with its token, so that nothing is launched twice.
        id_ = self._unanswered.pop(place, "")
        self._launched += not id_
        intent = LaunchIntent(
            id=id_ or f"karpenter-{self._launched}",
            pool=dict(tags).get(names.TAG_POOL, ""),
            source=offering.source,
            instance_type=offering.kind.name,
            zone=offering.zone,
            count=1,
            provisioner="karpenter",
            written_at=self._timeline.now(),
        )
        try:
            (instance_id,) = self._cloud.launch(intent, tags)
        except OutcomeUnknown:
            self._unanswered[place] = intent.id
            raise
        except NoCapacity as no:
            self._unavailable_until[_place(offering)] = self._timeline.now() + _UNAVAILABLE
            self._journal.add("nodeclaim-failed", pool.name, str(no))
            return False
        self.claims[instance_id] = NodeClaim(instance_id, pool.name, offering)
        self._room.changed()
        self._journal.add(
            "nodeclaim-launched", instance_id, f"for NodePool {pool.name} on {offering.source.label}"
        )
        return True

    def _retry_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._timeline.after(_UNAVAILABLE, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._request_reconcile()

    # --- letting go ---------------------------------------------------------------------------------

    def _look_for_empty(self) -> None:
        if not self._looking and self.claims:
            self._looking = True
            self._timeline.after(_LOOKS_FOR_EMPTY_EVERY, self._consolidate)

    def _consolidate(self) -> None:
        self._looking = False
        view, now = self._cluster.view(), self._timeline.now()
        patience = {pool.name: pool.consolidate_after for pool in self._node_pools() if pool.replicas is None}
        for node in view.nodes:
            claim = self.claims.get(node.instance_id)
            wait = patience.get(claim.pool) if claim is not None else None
            if claim is None or wait is None or not _is_open(node):
                continue
            since = max(
                at for at in (node.last_pod_event_at, node.opened_at, node.joined_at) if at is not None
            )
            if all(pod.daemon for pod in view.pods_by_node.get(node.name, ())) and now - since >= wait:
                self._delete(claim, f"empty for {wait}")
        if any(wait is not None for wait in patience.values()):
            self._look_for_empty()

    def _delete(self, claim: NodeClaim, why: str) -> None:
        """Its pods go with their grace: a NodeClaim is drained before its instance is ended."""
        if claim.deleting:
            return
        claim.deleting = True
        self._journal.add("nodeclaim-deleted", claim.instance_id, why)
        view = self._cluster.view()
        on_it = [
            pod.uid
            for node in view.nodes
            if node.instance_id == claim.instance_id
            for pod in view.pods_by_node.get(node.name, ())
            if not pod.daemon
        ]
        for uid in on_it:
            self._cluster.evict(uid)
        grace = timedelta(minutes=10) if on_it else timedelta(0)
        self._timeline.after(grace, lambda: self._end(claim, why))

    def _end(self, claim: NodeClaim, why: str) -> None:
        if claim.instance_id not in self.claims:
            return
        try:
            self._cloud.terminate(claim.instance_id, by="karpenter", why=why)
        except PortError:  # throttled: asked again
            self._timeline.after(_ASKS_AGAIN_AFTER, lambda: self._end(claim, why))


def bootable(spec: Spec) -> Spec:
    """The documents, with made-up values for what only a real launch needs: a rehearsal boots nothing."""
    platform = spec.platform.spec
    zones = platform.subnets or {f"{platform.region}a": ()}
    said = platform.model_copy(
        update={
            "node_role": platform.node_role or "rehearsal",
            "subnets": {zone: subnets or ("subnet-0",) for zone, subnets in zones.items()},
            "karpenter": platform.karpenter or KarpenterRef(version=_NEW_ENOUGH),
        }
    )
    return replace(spec, platform=spec.platform.model_copy(update={"spec": said}))


def _fits(pod: Pod, offering: Offering, free: Mapping[str, int]) -> bool:
    """By pin, node affinity, volumes and resources. Startup taints come off; those of the pool are checked per pool."""
    if pod.pinned_to and offering.labels.get(names.LABEL_SOURCE) != pod.pinned_to:
        return False
    if not matches_node_affinity(pod.shape, offering.labels) or not reaches_volumes(
        pod.shape, offering.labels
    ):
        return False
    return not insufficient(pod_requests(pod.shape), free)


def _is_open(node: KubeNode) -> bool:
    return node.ready and all(taint.key != names.TAINT_STARTUP for taint in node.taints)


def _place(offering: Offering) -> tuple[object, ...]:
    return offering.source, offering.kind.name, offering.zone
