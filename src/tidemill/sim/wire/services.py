"""Starts the services: the operations that the account answers, and moto, freshly wiped, for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidemill.sim.cloud.cloud import SimCloud

# Imported for what they add to the table of operations.
from tidemill.sim.wire import autoscaling as autoscaling
from tidemill.sim.wire import cloudformation as cloudformation
from tidemill.sim.wire import ec2_blocks as ec2_blocks
from tidemill.sim.wire import ec2_extensions as ec2_extensions
from tidemill.sim.wire import ec2_fleets as ec2_fleets
from tidemill.sim.wire import ec2_instance_types as ec2_instance_types
from tidemill.sim.wire import ec2_instances as ec2_instances
from tidemill.sim.wire import ec2_launches as ec2_launches
from tidemill.sim.wire import ec2_reservations as ec2_reservations
from tidemill.sim.wire import ec2_tags as ec2_tags
from tidemill.sim.wire import eks as eks
from tidemill.sim.wire import eks_clusters as eks_clusters
from tidemill.sim.wire import identity as identity
from tidemill.sim.wire import prices as prices
from tidemill.sim.wire import published_images as published_images
from tidemill.sim.wire.clock import WireClock
from tidemill.sim.wire.dispatcher import Dispatcher
from tidemill.sim.wire.group_format import remember_launches
from tidemill.sim.wire.network import create_network
from tidemill.sim.wire.state import Wire

if TYPE_CHECKING:
    from moto.moto_server.werkzeug_app import MotoRequestHandler


def start_moto(
    cloud: SimCloud,
    clock: WireClock,
    region: str,
    subnets: Mapping[str, Sequence[str]],
    images: Iterable[str] = (),
    security_groups: Iterable[str] = (),
) -> Wire:
    """moto's state is wiped, and its random ids begin anew from the account's seed."""
    from moto.backends import get_backend
    from moto.core.base_backend import BackendDict
    from moto.core.model_instances import reset_model_data
    from moto.moto_api._internal import mock_random

    account = cloud.identity().split(":")[4]
    with _no_stock_images():
        BackendDict.reset()
        reset_model_data()
        mock_random.seed(cloud.seed)
        network = create_network(
            get_backend("ec2")[account][region], cloud.zones, subnets, images, security_groups
        )
        published = published_images.publish(get_backend("ec2")[account][region], cloud.seed, network.images)
    made = Wire(cloud, clock, account, region, network, published)
    remember_launches(made)
    return made


@contextmanager
def _no_stock_images() -> Iterator[None]:
    """moto would load 1,300 old images, which takes longer than everything else and serves nothing here."""
    from moto import settings

    usual = settings.ec2_load_default_amis
    settings.ec2_load_default_amis = lambda: False
    try:
        yield
    finally:
        settings.ec2_load_default_amis = usual


def moto_app() -> Any:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


def handler(dispatcher: Dispatcher) -> type[MotoRequestHandler]:
    """moto's way to read a request, and a plain way to answer it: werkzeug's own would wait 10 ms after each."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    class Handler(MotoRequestHandler):
        def run_wsgi(self) -> None:
            self.close_connection = True
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            try:
                status, headers, body = dispatcher.answer(self.make_environ())
            except ConnectionError:
                return  # the caller sees a connection that ended
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log(self, type: str, message: str, *args: Any) -> None:
            pass  # not a line for every call

    return Handler


def no_app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """A server of werkzeug's must have one; the handler never asks it."""
    raise AssertionError("requests are answered by the handler")
