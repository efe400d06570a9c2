"""What a kubelet reads of a pod, and how the pod behaves: annotations `sim.tidemill.dev/…` say what real work would do.

    duration: 2h               how long it runs, in virtual time; not given: for ever
    fails: after=5m,exit=3     it fails, after its duration or `after`, with `exit` (1)
           times=2,share=0.5   … only so many times for its owner, or that share of pods
    acknowledges: "true"       it answers checkpoint requests after its checkpoint time
    stops-after: 20s           how long it takes to stop when told to; not given: a drawn share of its grace

What cannot be read says nothing, and is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemill.spec import names
from tidemill.spec.units import parse_cpu, parse_duration, parse_memory

log = logging.getLogger(__name__)
_PREFIX = "sim.tidemill.dev"
DURATION, FAILS = f"{_PREFIX}/duration", f"{_PREFIX}/fails"
ACKNOWLEDGES, STOPS_AFTER = f"{_PREFIX}/acknowledges", f"{_PREFIX}/stops-after"


@dataclass(frozen=True, slots=True)
class Failure:
    after: timedelta | None = None  # None: when its work would be done
    exit_code: int = 1
    times: int | None = None  # None: always
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class PodSpec:
    uid: str
    namespace: str
    name: str
    owner: str  # "Job/train"; empty: nobody would make it again
    owner_uid: str
    index: str  # of an indexed Job
    daemon: bool
    restarts: str  # Always, OnFailure, Never
    containers: tuple[tuple[str, str], ...]  # name, image
    grace: timedelta
    requests: Mapping[str, int]
    duration: timedelta | None
    failure: Failure | None
    load: timedelta
    checkpoint_time: timedelta
    checkpoint_every: timedelta | None
    acknowledges: bool
    stops_after: timedelta | None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def work(self) -> str:
        """The same for every pod that does one piece of work: what is done of it outlives the pod."""
        return f"{self.owner_uid or self.uid}/{self.index}"


def read_pod(pod: Mapping[str, Any]) -> PodSpec:
    meta, spec = pod["metadata"], pod["spec"]
    notes: Mapping[str, str] = meta.get("annotations") or {}
    owner: Mapping[str, Any] = next(
        (each for each in meta.get("ownerReferences") or () if each.get("controller")), {}
    )
    full_name = f"{meta['namespace']}/{meta['name']}"
    grace_s = spec.get("terminationGracePeriodSeconds")
    return PodSpec(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        owner=f"{owner['kind']}/{owner['name']}" if owner else "",
        owner_uid=str(owner.get("uid", "")),
        index=notes.get("batch.kubernetes.io/job-completion-index", ""),
        daemon=owner.get("kind") == "DaemonSet",
        restarts=spec.get("restartPolicy", "Always"),
        containers=tuple((each["name"], each.get("image", "")) for each in spec["containers"]),
        grace=timedelta(seconds=30 if grace_s is None else int(grace_s)),
        requests=_requests(full_name, spec),
        duration=_duration(full_name, notes, DURATION),
        failure=_failure(full_name, notes.get(FAILS)),
        load=_duration(full_name, notes, names.LOAD_TIME) or timedelta(0),
        checkpoint_time=_duration(full_name, notes, names.CHECKPOINT_TIME) or timedelta(0),
        checkpoint_every=_duration(full_name, notes, names.CHECKPOINT_EVERY),
        acknowledges=notes.get(ACKNOWLEDGES) == "true",
        stops_after=_duration(full_name, notes, STOPS_AFTER),
    )


def _duration(pod: str, notes: Mapping[str, str], key: str) -> timedelta | None:
    if key not in notes:
        return None
    try:
        return parse_duration(notes[key])
    except ValueError as error:
        log.warning("%s: %s: %s", pod, key, error)
        return None


def _failure(pod: str, written: str | None) -> Failure | None:
    if written is None:
        return None
    given: dict[str, Any] = {}
    try:
        for item in filter(None, (part.strip() for part in written.split(","))):
            key, _, value = item.partition("=")
            match key:
                case "after":
                    given["after"] = parse_duration(value)
                case "exit":
                    given["exit_code"] = int(value)
                case "times":
                    given["times"] = int(value)
                case "share":
                    given["share"] = float(value)
                case "true":
                    pass
                case _:
                    raise ValueError(f"'{item}' is not after=, exit=, times= or share=")
    except ValueError as error:
        log.warning("%s: %s: %s", pod, FAILS, error)
        return None
    return Failure(**given)


def _requests(pod: str, spec: Mapping[str, Any]) -> dict[str, int]:
    """As the scheduler counts them: the sum of the containers, or the largest init container, and the overhead."""
    together: dict[str, int] = {}
    for container in spec["containers"]:
        _add(pod, together, container)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":  # a sidecar runs beside the others
            _add(pod, together, container)
            continue
        alone: dict[str, int] = {}
        _add(pod, alone, container)
        for name, amount in alone.items():
            together[name] = max(together.get(name, 0), amount)
    for name, written in (spec.get("overhead") or {}).items():
        together[name] = together.get(name, 0) + _amount(pod, name, written)
    return together


def _add(pod: str, total: dict[str, int], container: Mapping[str, Any]) -> None:
    for name, written in ((container.get("resources") or {}).get("requests") or {}).items():
        total[name] = total.get(name, 0) + _amount(pod, name, written)


def _amount(pod: str, name: str, written: str) -> int:
    try:
        return parse_cpu(written) if name == names.CPU else parse_memory(written)
    except ValueError as error:
        log.warning("%s: %s: %s", pod, name, error)
        return 0
