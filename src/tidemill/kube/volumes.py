"""Which zones a pod's bound volumes can be reached from: its claims -> their volumes -> the volumes' node affinity."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.kube.objects import ClaimObject, Key, PodObject, VolumeObject
from tidemill.spec import names

# The label of the EBS driver means the same.
_ZONE_KEYS = (names.LABEL_ZONE, "topology.ebs.csi.aws.com/zone", "failure-domain.beta.kubernetes.io/zone")
# Volumes in two zones at once: no node reaches both.
NO_ZONE = ("(its volumes are in different zones)",)


def claims_of(pod: PodObject) -> Iterator[Key]:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield namespace, volume.persistent_volume_claim.claim_name
        elif bytes(volume.ephemeral):
            yield namespace, f"{pod.metadata.name}-{volume.name}"


def zones_of_volume(volume: VolumeObject) -> frozenset[str]:
    """Empty: it can be reached from everywhere, as far as it says."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return frozenset()
    zones: set[str] = set()
    for term in affinity.required.node_selector_terms or ():
        named = [
            set(rule.values or ())
            for rule in term.match_expressions or ()
            if rule.key in _ZONE_KEYS and rule.operator == "In"
        ]
        if not named:
            return frozenset()  # one of the terms holds in every zone
        zones |= set.intersection(*named)
    return frozenset(zones)


class Volumes:
    def __init__(self) -> None:
        self._volume_of: dict[Key, str] = {}  # by claim
        self._claims_on: dict[str, set[Key]] = {}  # by volume
        self._zones: dict[str, frozenset[str]] = {}  # by volume; those with no zone are left out

    def put_claim(self, one: ClaimObject) -> bool:
        """Whether anything changed."""
        return self._bind(one.key, one.spec.volume_name)

    def drop_claim(self, key: Key) -> bool:
        return self._bind(key, "")

    def _bind(self, claim: Key, volume: str) -> bool:
        before = self._volume_of.get(claim, "")
        if before == volume:
            return False
        if before:
            self._claims_on[before].discard(claim)
            if not self._claims_on[before]:
                del self._claims_on[before]
            del self._volume_of[claim]
        if volume:
            self._volume_of[claim] = volume
            self._claims_on.setdefault(volume, set()).add(claim)
        return True

    def put_volume(self, one: VolumeObject) -> set[Key]:
        """The claims it matters to."""
        return self._place(one.metadata.name, zones_of_volume(one))

    def drop_volume(self, name: str) -> set[Key]:
        return self._place(name, frozenset())

    def _place(self, name: str, zones: frozenset[str]) -> set[Key]:
        if self._zones.get(name, frozenset()) == zones:
            return set()
        if zones:
            self._zones[name] = zones
        else:
            del self._zones[name]
        return set(self._claims_on.get(name, ()))

    def zones_of(self, pod: PodObject) -> tuple[str, ...]:
        if not pod.spec.volumes:
            return ()
        common: frozenset[str] | None = None
        for claim in claims_of(pod):
            zones = self._zones.get(self._volume_of.get(claim, ""))
            if zones:
                common = zones if common is None else common & zones
        return () if common is None else tuple(sorted(common)) or NO_ZONE
