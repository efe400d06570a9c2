"""Ports that can be read and not written: what a dry run and the commands that only look are given.

A write is refused, whoever asks for it. What the engine writes down by itself, without an action (metering, what AWS
shows of an adopted block), is left out without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn, Protocol

from tidemill.model.capacity import Reservation
from tidemill.model.errors import Refused
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance
from tidemill.model.offers import Extension, ExtensionOffer, ExtensionQuery, Offer, OfferQuery
from tidemill.model.purchases import (
    Adoption,
    BlockHours,
    Caps,
    CostLine,
    LaunchIntent,
    Pause,
    PurchaseIntent,
    ShownReservation,
    Spending,
)
from tidemill.model.reasons import DrainReason
from tidemill.ports import Cloud, ClusterView, Ledger

DRY_RUN = "dry-run"


def _refuse(what: str) -> NoReturn:
    raise Refused(f"dry run: would {what}", code=DRY_RUN)


class Viewed(Protocol):
    """What of a cluster is read."""

    def view(self) -> ClusterView: ...


class ReadOnlyCluster:
    def __init__(self, cluster: Viewed) -> None:
        self._cluster = cluster

    def view(self) -> ClusterView:
        return self._cluster.view()

    def admit(self, pods: Sequence[str], source_label: str, ends_at: datetime | None, pool: str = "") -> None:
        _refuse("admit pods")

    def mark_ready(self, node: str) -> None:
        _refuse("open a node")

    def start_drain(self, node: str, reason: DrainReason) -> None:
        _refuse("drain a node")

    def keep_for_jobs(self, node: str, ends_at: datetime) -> None:
        _refuse("close a node to services")

    def cancel_drain(self, node: str) -> None:
        _refuse("cancel a drain")

    def announce_end(self, pod: str, ends_at: datetime) -> None:
        _refuse("announce an end")

    def announce_node_end(self, node: str, ends_at: datetime) -> None:
        _refuse("announce an end")

    def request_checkpoint(self, pod: str) -> None:
        _refuse("request a checkpoint")

    def evict(self, pod: str) -> bool:
        _refuse("evict a pod")

    def delete(self, pod: str, grace_s: int | None, *, disruption: bool) -> None:
        _refuse("delete a pod")

    def restart(self, workload: str, token: str) -> None:
        _refuse("restart a workload")

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        _refuse("scale a workload")

    def is_empty(self, instance_id: str) -> bool:
        return True  # nothing is ended: the last reading is good enough

    def remove_node(self, node: str) -> None:
        _refuse("remove a node")


class ReadOnlyCloud:
    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def reservations(self) -> Sequence[Reservation]:
        return self._cloud.reservations()

    def instances(self) -> Sequence[Instance]:
        return self._cloud.instances()

    def search_offers(self, query: OfferQuery) -> Sequence[Offer]:
        return self._cloud.search_offers(query)

    def purchase(self, offer_id: str, tags: Pairs) -> Sequence[Reservation]:
        _refuse("buy a block")

    def search_extensions(self, query: ExtensionQuery) -> Sequence[ExtensionOffer]:
        return self._cloud.search_extensions(query)

    def purchase_extension(self, offer_id: str, reservation_id: str) -> Extension:
        _refuse("buy an extension")

    def extensions(self) -> Sequence[Extension]:
        return self._cloud.extensions()

    def tag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        _refuse("tag a block")

    def untag_reservation(self, reservation_id: str, tags: Pairs) -> None:
        _refuse("untag a block")

    def identity(self) -> str:
        return self._cloud.identity()

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        _refuse("launch")

    def terminate(self, instance_id: str) -> None:
        _refuse("terminate an instance")

    def console_output(self, instance_id: str) -> str:
        return self._cloud.console_output(instance_id)


class ReadOnlyLedger:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def durable(self) -> bool:
        return self._ledger.durable

    @property
    def deployment(self) -> str:
        return self._ledger.deployment

    def launches(self) -> tuple[LaunchIntent, ...]:
        return self._ledger.launches()

    def write_launch(self, intent: LaunchIntent) -> None:
        _refuse("launch")

    def purchases(self) -> tuple[PurchaseIntent, ...]:
        return self._ledger.purchases()

    def propose(self, intent: PurchaseIntent) -> None:
        _refuse("propose a purchase")

    def advance(self, before: PurchaseIntent, after: PurchaseIntent, *, caps: Caps | None = None) -> None:
        _refuse("change a purchase")

    def adopt(self, adoption: Adoption) -> None:
        _refuse("adopt a block")

    def adoptions(self) -> tuple[Adoption, ...]:
        return self._ledger.adoptions()

    def pause(self) -> Pause | None:
        return self._ledger.pause()

    def write_pause(self, pause: Pause) -> None:
        _refuse("pause the engine")

    def remember(self, reservation_id: str, shown: ShownReservation) -> None:
        """Left out: nobody acts on it in a dry run."""

    def meter(self, line: CostLine) -> None:
        """Left out."""

    def write_block_hours(self, lines: tuple[BlockHours, ...]) -> None:
        """Left out."""

    def block_hours(self) -> tuple[BlockHours, ...]:
        return self._ledger.block_hours()

    def metered(self) -> tuple[CostLine, ...]:
        return self._ledger.metered()

    def spending(self, now: datetime) -> Spending:
        return self._ledger.spending(now)
