"""What is written of a pod: its status, its word that a checkpoint is done, and the deletion when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.sim.wire.data_plane.api_client import MERGE, STRATEGIC, ApiClient, ApiError
from tidemill.sim.wire.data_plane.node_object import format_micro
from tidemill.sim.wire.data_plane.pod_spec import PodSpec
from tidemill.sim.wire.data_plane.write_queue import WriteQueue
from tidemill.spec import names


@dataclass(slots=True, eq=False)
class Wanted:
    """What the pod's object is to say. Set in the account's turn, read by the threads that write."""

    spec: PodSpec
    status: Mapping[str, Any] | None = None
    checkpoint_done: datetime | None = None  # wall time
    deleted: bool = False
    # What was written of it:
    sent_status: Mapping[str, Any] | None = None
    sent_checkpoint: datetime | None = None
    gone: bool = False


class PodWriter:
    def __init__(self, client: ApiClient, writes: WriteQueue) -> None:
        self._client, self._writes = client, writes

    def write(self, wanted: Wanted) -> None:
        self._writes.submit(f"pod {wanted.spec.full_name} {wanted.spec.uid}", lambda: self._send(wanted))

    def delete(self, wanted: Wanted) -> None:
        """Its containers have stopped: a deletion without grace is what ends the object."""
        if not wanted.deleted:
            wanted.deleted = True
            self.write(wanted)

    def _send(self, wanted: Wanted) -> None:
        if wanted.gone:
            return
        try:
            self._bring_up_to_date(wanted)
        except ApiError as error:
            # Another pod has the name by now, or none: there is nothing left to say.
            if error.status == 404 or (error.status == 409 and "uid" in str(error).lower()):
                wanted.gone = True
            else:
                raise

    def _bring_up_to_date(self, wanted: Wanted) -> None:
        spec, uid = wanted.spec, {"uid": wanted.spec.uid}
        path = f"/api/v1/namespaces/{spec.namespace}/pods/{spec.name}"
        done = wanted.checkpoint_done
        if done is not None and done is not wanted.sent_checkpoint:
            notes = {names.CHECKPOINT_DONE: format_micro(done)}
            self._client.send("PATCH", path, {"metadata": uid | {"annotations": notes}}, MERGE)
            wanted.sent_checkpoint = done
        status = wanted.status
        if status is not None and status is not wanted.sent_status:
            self._client.send("PATCH", f"{path}/status", {"metadata": uid, "status": status}, STRATEGIC)
            wanted.sent_status = status
        if wanted.deleted:
            self._client.send("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": uid})
            wanted.gone = True
