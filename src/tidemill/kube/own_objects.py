"""Tidemill's own objects in the cluster: the documents as people wrote them, their status, and the CapacityBlocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from tidemill.kube.api import APPLY_PATCH, KubeApi
from tidemill.kube.custom_objects import all_pages
from tidemill.model.errors import Gone
from tidemill.spec.crds import BY_KIND, GROUP, VERSION
from tidemill.spec.names import API_VERSION

DOCUMENTS = ("Platform", "NodeClass", "ComputePool", "CapacityPlan")
BLOCK = "CapacityBlock"
_MANAGER = "tidemill"


class OwnObjects:
    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def documents(self) -> list[Mapping[str, Any]]:
        """Every document; none of a kind that the API server does not serve."""
        return [thing for kind in DOCUMENTS for thing in self._listed(kind)]

    def blocks(self) -> list[Mapping[str, Any]]:
        return list(self._listed(BLOCK))

    def write_block(self, name: str, spec: Mapping[str, Any]) -> None:
        self._apply(BLOCK, name, {"spec": spec})

    def remove_block(self, name: str) -> None:
        with suppress(Gone):
            self._api.send("DELETE", _path(BLOCK, name))

    def write_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Gone: somebody deleted the object meanwhile."""
        self._apply(kind, name, {"status": status}, "/status")

    def _listed(self, kind: str) -> Iterator[Mapping[str, Any]]:
        for item in all_pages(self._api, _path(kind), kind):
            yield {"apiVersion": API_VERSION, "kind": kind, **item}  # items of a list may lack both

    def _apply(self, kind: str, name: str, part: Mapping[str, Any], at: str = "") -> None:
        """Forced: nobody else has a say in what these fields are."""
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **part}
        self._api.send(
            "PATCH", f"{_path(kind, name)}{at}", msgspec.json.encode(body), content_type=APPLY_PATCH,
            params={"fieldManager": _MANAGER, "force": "true"},
        )  # fmt: skip


def _path(kind: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/{BY_KIND[kind].plural}"
    return f"{path}/{name}" if name else path
