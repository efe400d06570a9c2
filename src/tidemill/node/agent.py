"""The deadline agent as it runs on its node: it follows two things, its Node and the pods there, and does what is due.

It needs the API server only to act: what it knows it keeps. Objects are read and written here, and nowhere else in the
agent; instants in them are wall time, durations the engine's (one mapping, the clock's).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from tidemill import __version__
from tidemill.model.errors import Gone, Retryable, TidemillError
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.node.deadline_agent import AgentNode, AgentPod, CloseNode, DeletePod, due
from tidemill.node.own_objects import NodeApi, Object, OwnObjects
from tidemill.spec import names
from tidemill.spec.units import format_instant, parse_instant

BOOT_FILE = "/etc/tidemill/ends-at"  # written by the user data of the boot
DEFAULT_GRACE_S = 30  # Kubernetes'
LONGEST_GRACE_S = 10**9  # Kubernetes allows 2^63, which is before the beginning of the calendar
# A clock that was set is noticed within this time.
LONGEST_WAIT_S = 10.0
RETRY_S = 1.0
WRITE_TIMEOUT_S = 5.0
# A deleted pod that the watch still shows as it was is deleted again after this time.
ASK_AGAIN_S = 10.0
# So long the condition that spares a Job's back-off limit is tried before the pod is deleted without it.
CONDITION_PATIENCE = timedelta(seconds=10)

# Every call it makes, as RBAC names it: verb, group, resource with its subresource.
CALLS = (
    ("list", "", "nodes"),
    ("watch", "", "nodes"),
    ("patch", "", "nodes"),
    ("list", "", "pods"),
    ("watch", "", "pods"),
    ("delete", "", "pods"),
    ("patch", "", "pods/status"),
)

_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


class AgentClock(Protocol):
    """`engine.clock.MappedClock`, in short."""

    def now(self) -> datetime: ...
    def from_wall(self, instant: datetime) -> datetime: ...
    def to_wall(self, instant: datetime) -> datetime: ...
    def wall_seconds(self, duration: timedelta) -> float: ...


class Agent:
    def __init__(
        self,
        api: NodeApi,
        node: str,
        clock: AgentClock,
        *,
        boot_end: Callable[[], datetime | None] = lambda: None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`boot_end`: the end the node was launched with, in the engine's time."""
        self._api, self._name, self._clock, self._boot_end, self._say = api, node, clock, boot_end, say
        self._wake = threading.Event()
        self._nodes = OwnObjects(api, "/api/v1/nodes", f"metadata.name={node}", self._wake.set, say)
        self._pods = OwnObjects(api, "/api/v1/pods", f"spec.nodeName={node}", self._wake.set, say)
        self._asked: dict[str, float] = {}  # uid -> when its deletion was last asked for, monotonic
        self._failing: dict[str, str] = {}  # what could not be done, said once

    def run(self, stop: threading.Event) -> None:
        for objects in (self._nodes, self._pods):
            threading.Thread(target=objects.follow, args=(stop,), daemon=True).start()
        while not stop.is_set():
            self._wake.wait(self._look())
            self._wake.clear()

    def _look(self) -> float:
        """A fault of ours must not leave the node without its agent."""
        try:
            return self.look()
        except Exception as error:
            self._say_once("look at the node", f"{type(error).__name__}: {error}")
            return RETRY_S

    def wake(self) -> None:
        """Look now, or see that it was stopped."""
        self._wake.set()

    def look(self) -> float:
        """Do what is due. Returns how many seconds to wait unless something changes before."""
        seen = next(iter(self._nodes.all()), None)
        pods = [self._pod(one) for one in self._pods.all()]
        node = self._node(seen)
        self._announce(seen, node)
        now = self._clock.now()
        found = due(node, pods, now)
        done = True
        for action in found.actions:
            match action:
                case CloseNode(ends_at):
                    done &= seen is None or self._try("close the node", self._close, seen, ends_at)
                case DeletePod(pod, since):
                    patient = now - since <= CONDITION_PATIENCE
                    done &= self._try(f"delete {pod.full_name}", self._delete, pod, node, patient)
        if not done:
            return RETRY_S
        until_next = self._clock.wall_seconds(found.next_at - now) if found.next_at else LONGEST_WAIT_S
        return min(max(until_next, 0.001), LONGEST_WAIT_S)

    # --- what was seen ------------------------------------------------------------------------------

    def _node(self, seen: Object | None) -> AgentNode:
        if seen is None:
            return AgentNode(self._name, self._boot_end(), draining=False)
        told = self._told(seen)
        ends_at = self._clock.from_wall(told) if told is not None else self._boot_end()
        taints = seen.get("spec", {}).get("taints") or ()
        labels = seen["metadata"].get("labels") or {}
        return AgentNode(
            self._name, ends_at, draining=any(taint.get("key") == names.TAINT_DRAINING for taint in taints),
            source=str(labels.get(names.LABEL_SOURCE, "")),
        )  # fmt: skip

    def _told(self, seen: Object) -> datetime | None:
        """What the engine wrote on the node, in wall time."""
        try:
            return parse_instant(_annotations(seen).get(names.ENDS_AT, ""))
        except ValueError:
            return None

    def _pod(self, seen: Object) -> AgentPod:
        metadata, spec = seen["metadata"], seen.get("spec", {})
        uid = str(metadata["uid"])
        grace_s = spec.get("terminationGracePeriodSeconds")
        finished = seen.get("status", {}).get("phase") in ("Succeeded", "Failed")
        asked_lately = time.monotonic() - self._asked.get(uid, -ASK_AGAIN_S) < ASK_AGAIN_S
        return AgentPod(
            uid, str(metadata["namespace"]), str(metadata["name"]),
            timedelta(seconds=DEFAULT_GRACE_S if grace_s is None else min(grace_s, LONGEST_GRACE_S)),
            leaving=finished or "deletionTimestamp" in metadata or asked_lately,
            daemon=any(owner.get("kind") in ("DaemonSet", "Node") for owner in metadata.get("ownerReferences") or ()),
        )  # fmt: skip

    # --- what is done -------------------------------------------------------------------------------

    def _try(self, what: str, do: Callable[..., None], *given: Any) -> bool:
        try:
            do(*given)
        except Gone:
            pass
        except TidemillError as error:
            self._say_once(what, str(error))
            return False
        self._failing.pop(what, None)
        return True

    def _say_once(self, what: str, error: str) -> None:
        if self._failing.get(what) != error:
            self._say(f"cannot {what}: {error}; trying again")
            self._failing[what] = error

    def _announce(self, seen: Object | None, node: AgentNode) -> None:
        """On its Node: that an agent is there, and by when it empties the node. The engine reads it."""
        if seen is None:
            return
        written = _annotations(seen)
        known = None
        if (
            node.ends_at is not None
        ):  # the engine's words as they are: two clocks that map them may round apart
            told = self._told(seen) is not None
            known = written[names.ENDS_AT] if told else format_instant(self._clock.to_wall(node.ends_at))
        wanted = {names.DEADLINE_AGENT: __version__, names.AGENT_ENDS_AT: known}
        if any(written.get(key) != value for key, value in wanted.items()):
            patch = {"metadata": {"annotations": wanted}}
            self._try("write the node's annotations", self._patch_node, patch)

    def _close(self, seen: Object, ends_at: datetime) -> None:
        """With the reason an engine would give, so that one that comes back goes on from here, or takes it back."""
        labels = seen["metadata"].get("labels") or {}
        reason = DrainReason(
            DrainKind.SOURCE_ENDS, at=self._clock.to_wall(ends_at), name=str(labels.get(names.LABEL_SOURCE, ""))
        )  # fmt: skip
        taint = {"key": names.TAINT_DRAINING, "value": reason.kind.value, "effect": "NoSchedule"}
        since = format_instant(self._clock.to_wall(self._clock.now()))
        facts = {f"{names.DRAIN_REASON}{key}": value for key, value in reason.to_annotations().items()}
        self._patch_node(
            {
                # Taints are one list: whoever changed it since must not be overwritten.
                "metadata": {
                    "resourceVersion": seen["metadata"]["resourceVersion"],
                    "annotations": {names.DRAINING_SINCE: since, **facts},
                },
                "spec": {"taints": [*(seen.get("spec", {}).get("taints") or ()), taint]},
            }
        )
        self._say(f"{self._name} ends at {format_instant(ends_at)}: it takes no new pods")

    def _patch_node(self, patch: Mapping[str, Any]) -> None:
        self._api.send(
            "PATCH", f"/api/v1/nodes/{self._name}", _encoded(patch), content_type=_MERGE,
            params=_MANAGER, timeout_s=WRITE_TIMEOUT_S,
        )  # fmt: skip

    def _delete(self, pod: AgentPod, node: AgentNode, patient: bool) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            self._set_disruption_target(path, pod, node)
        except Retryable:
            if patient:
                raise
        except Gone:
            raise
        except TidemillError as error:
            self._say(f"{pod.full_name} is deleted without the condition DisruptionTarget: {error}")
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        self._api.send("DELETE", path, _encoded(options), timeout_s=WRITE_TIMEOUT_S)
        self._asked[pod.uid] = time.monotonic()
        grace_s = int(pod.grace.total_seconds())
        self._say(f"{pod.full_name} was asked to stop, with its grace of {grace_s} s")

    def _set_disruption_target(self, path: str, pod: AgentPod, node: AgentNode) -> None:
        """A Job's podFailurePolicy that ignores this condition does not count the failure."""
        assert node.ends_at is not None
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "NodeEnds",
            "message": f"Tidemill: the node must be empty by {format_instant(self._clock.to_wall(node.ends_at))}",
            "lastTransitionTime": format_instant(
                self._clock.to_wall(self._clock.now()).replace(microsecond=0)
            ),
        }
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._api.send(
            "PATCH", f"{path}/status", _encoded(patch), content_type=_STRATEGIC, params=_MANAGER,
            timeout_s=WRITE_TIMEOUT_S,
        )  # fmt: skip


_MANAGER = {"fieldManager": "tidemill-node-agent"}


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _annotations(seen: Object) -> Mapping[str, str]:
    return seen["metadata"].get("annotations") or {}


def read_boot_end(path: str) -> Callable[[], datetime | None]:
    """The file of the boot, which the unit of the boot rewrites when the end moves."""

    def read() -> datetime | None:
        try:
            with open(path, encoding="utf-8") as file:
                return parse_instant(file.read(100).strip())
        except (OSError, ValueError):
            return None

    return read
