"""What the wire keeps besides the account: its network, the launch requests of instances, and open pages.

The account knows what an instance is; the parts of a launch that mean nothing to it (image, subnet, template) are kept
beside it here, by the token of the call that launched it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.wire.clock import WireClock
from tidemill.sim.wire.faults import WireFaults
from tidemill.sim.wire.network import Network, Subnet
from tidemill.sim.wire.paging import Pages

if TYPE_CHECKING:
    from tidemill.sim.wire.data_plane.plane import DataPlane
    from tidemill.sim.wire.event_bus import EventBus


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One call that launched, as it was asked; what templates say is already part of it."""

    subnet: Subnet
    image: str
    security_groups: tuple[str, ...]
    asked: Mapping[str, Any]  # RunInstances' parameters, to tell a repetition from a token used twice
    template: str = ""  # lt-… and its version, where one was used
    template_version: str = ""
    key_name: str = ""
    profile: str = ""  # the ARN of the instance profile
    preference: str = ""  # as to open reservations: `open`, `none`; empty: it names its source
    reserved_only: bool = False  # it asked for CapacityReservationPreference capacity-reservations-only
    user_data: str = ""
    group: str = ""  # the Auto Scaling group that made the call
    interfaces: tuple[str, ...] = ("interface",)  # their types


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call that may change something, as it came in; whether it was answered is not said."""

    at: datetime
    wall: datetime
    key: str  # the access key it was signed with
    action: str


@dataclass(slots=True)
class Wire:
    cloud: SimCloud
    clock: WireClock
    account: str
    region: str
    network: Network
    published_images: Mapping[tuple[str, str, str], str]  # by family, architecture, variant
    launches: dict[str, LaunchRecord] = field(default_factory=dict)  # by token
    pages: Pages = field(default_factory=Pages)
    faults: WireFaults = field(default_factory=WireFaults)
    bus: EventBus | None = None  # where the account's events go; None: nobody has opened the server yet
    data_plane: DataPlane | None = None  # where instances become nodes; None: nowhere
    calls: list[ReceivedCall] = field(default_factory=list)
    schedules: dict[str, Callable[[], None]] = field(
        default_factory=dict
    )  # of EventBridge: how to cancel each
    shown_offers: set[str] = field(default_factory=set)
    _addresses: dict[str, str] = field(default_factory=dict)  # by instance
    _address_of: dict[str, str] = field(default_factory=dict)  # the instance that has it, or had it last
    _made: int = 0

    def moto(self, service: str) -> Any:
        """moto's backend of a service, in this account and region."""
        from moto import backends

        get_backend: Any = backends.get_backend  # typed by moto for each name apart
        return get_backend(service)[self.account][self.region]

    def make_role(self, name: str) -> None:
        """A role of the nodes: the account has it before anything is launched."""
        self.iam.create_role(name, "{}", "/", None, "", [], "3600")

    def make_profile(self, name: str) -> None:
        self.iam.create_instance_profile(name=name, path="/", role_names=[])

    @property
    def iam(self) -> Any:
        """moto's backend of IAM, which has no region."""
        from moto import backends

        get_backend: Any = backends.get_backend
        partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(self.region.rsplit("-", 2)[0], "aws")
        return get_backend("iam")[self.account][partition]

    def new_token(self, what: str) -> str:
        """For a call that brought none: never the same twice."""
        self._made += 1
        return f"{what}-{self._made}"

    def launch_of(self, history: InstanceHistory) -> LaunchRecord:
        """Its launch request; for an instance launched in process, what it would have been."""
        record = self.launches.get(history.token)
        if record is not None:
            return record
        kind = self.cloud.catalog.types[history.now.instance_type]
        image = self.network.images["arm64" if kind.arch == "arm64" else "x86_64"]
        return LaunchRecord(self.network.in_zone(history.now.zone), image, (self.network.security_group,), {})

    def address(self, history: InstanceHistory) -> str:
        """Its private address: the next free one of its subnet, in the order they are first looked at."""
        if history.now.id not in self._addresses:
            subnet = self.launch_of(history).subnet
            number = len(self._addresses)
            while self._is_taken(subnet.address(number)):
                number += 1
            made = self._addresses[history.now.id] = subnet.address(number)
            self._address_of[made] = history.now.id
        return self._addresses[history.now.id]

    def _is_taken(self, address: str) -> bool:
        """A large account comes round: the address of an instance that is gone is used again."""
        holder = self._address_of.get(address)
        history = self.cloud.instance_histories.get(holder or "")
        return history is not None and history.now.state is not InstanceState.TERMINATED
