"""A server for one simulated account, in threads of this process, on the loopback.

moto's state is global to the process, so one runs at a time, and each begins with moto's state wiped; any number may
follow each other. Stopping one leaves nothing behind.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Self

from tidemill.model.errors import SpecError
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.timeline import Timeline
from tidemill.sim.wire import cloudformation, moto_check
from tidemill.sim.wire.clock import WireClock
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.sim.wire.state import Wire
from tidemill.spec.platform import ClusterRef

_one_at_a_time = threading.Lock()


def _listening(host: str, port: int) -> socket.socket:
    """Opened first, so that a failure changes nothing."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        why = (error.strerror or str(error)).split(" (", 1)[0]
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise SpecError(f"cannot listen on {host}:{port}: {why}; name another {other}") from None


class WireServer:
    def __init__(
        self,
        cloud: SimCloud,
        timeline: Timeline,
        *,
        speed: float = 0,
        region: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        subnets: Mapping[str, Sequence[str]] | None = None,
        images: Iterable[str] = (),
        kube: KubeApi | None = None,
        boot_fast: bool = False,
        startup_taints: Iterable[str] = (),
        cluster: ClusterRef | None = None,
        roles: Iterable[str] = (),
        profiles: Iterable[str] = (),
        security_groups: Iterable[str] = (),
    ) -> None:
        """`port` 0: a free one. The region is that of the zones unless it is named. `subnets`: ids by zone that are to
        be there, such as a Platform's; `images`: ids of images, such as those of NodeClasses. `kube`: where instances
        become nodes and run pods; with `boot_fast` at once. `startup_taints`: keys that others than Tidemill take off
        nodes. `cluster`: an EKS cluster that is there; `roles`: names of the nodes' roles, each with an
        instance profile of its name; `profiles`: of other instance profiles; `security_groups`: their ids."""
        self._cloud = cloud
        self._region = region or cloud.zones[0][:-1]
        self._address = host, port
        self._subnets, self._images = subnets or {}, tuple(images)
        self._kube, self._cluster = kube, cluster
        self._roles, self._profiles, self._groups = tuple(roles), tuple(profiles), tuple(security_groups)
        self._boot_fast, self._startup_taints = boot_fast, tuple(startup_taints)
        self._timeline = timeline
        self.clock = WireClock(timeline, speed=speed)
        self._server: Any = None
        self._dispatcher: Any = None
        self._listeners: list[Any] = []  # to the account, for as long as the server runs
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        assert self._wire is not None, "the server has not been started"
        return self._wire

    @property
    def endpoint(self) -> str:
        return f"http://{self._server.host}:{self._server.port}"

    @property
    def api_server(self) -> str:
        """Where instances become nodes; empty: nowhere."""
        return self._kube.url if self._kube is not None else ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which an AWS client calls this server and nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "simulated",
            "AWS_SECRET_ACCESS_KEY": "simulated",
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
        }

    # --- running ------------------------------------------------------------------------------------

    def start(self) -> str:
        """The endpoint. SpecError: moto is not as it must be, the port is taken, or a server runs already."""
        moto_check.check()
        if not _one_at_a_time.acquire(blocking=False):
            raise SpecError(
                "a simulated AWS already runs in this process: moto's state is shared; stop it first"
            )
        try:
            self._open()
        except BaseException:
            _one_at_a_time.release()
            raise
        return self.endpoint

    def stop(self) -> None:
        """Idempotent. Requests under way are answered first."""
        if self._server is None:
            return
        self._server.shutdown()
        self._dispatcher.close()
        self.clock.stop()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()
        self._server = self._thread = None
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        cloudformation.put_back()
        _one_at_a_time.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the clock ----------------------------------------------------------------------------------

    def turn(self) -> AbstractContextManager[datetime]:
        """Exclusive access to the account: use it around calls in process."""
        return self.clock.turn()

    def advance(self, *, to: datetime | None = None, by: timedelta = timedelta(0)) -> datetime:
        return self.clock.advance(to=to, by=by)

    # --- opening ------------------------------------------------------------------------------------

    def _open(self) -> None:
        from werkzeug.serving import make_server

        from tidemill.sim.wire import services
        from tidemill.sim.wire.data_plane.plane import DataPlane
        from tidemill.sim.wire.dispatcher import Dispatcher
        from tidemill.sim.wire.event_bus import EventBus

        host, port = self._address
        with _listening(host, port) as door:
            self._wire = services.start_moto(
                self._cloud, self.clock, self._region, self._subnets, self._images, self._groups
            )
            if self._cluster is not None:
                services.eks_clusters.make_cluster(self._wire, self._cluster, self._kube)
            for role in self._roles:
                self._wire.make_role(role)
            for profile in (*self._roles, *self._profiles):
                self._wire.make_profile(profile)
            self._wire.bus = EventBus(self._wire, self._timeline)
            self._listeners.append(self._wire.bus)
            if self._kube is not None:
                self._wire.data_plane = DataPlane(
                    self._wire,
                    self._timeline,
                    self._kube,
                    fast=self._boot_fast,
                    startup_taints=self._startup_taints,
                )
                self._listeners.append(self._wire.data_plane)
            self._dispatcher = Dispatcher(self._wire, services.moto_app())
            self._server = make_server(
                host,
                port,
                services.no_app,
                threaded=True,
                request_handler=services.handler(self._dispatcher),
                fd=door.fileno(),
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="tidemill-wire",
            daemon=True,
        )
        self._thread.start()
        self.clock.start()
