"""Objects of kinds that others define, as Karpenter's: `provision.karpenter.KubeObjects` over an API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tidemill.kube.api import APPLY_PATCH, KubeApi, Params
from tidemill.kube.codec import ListMeta
from tidemill.kube.errors import NOT_SERVED
from tidemill.model.errors import Gone, Retryable

_PAGE = 250
# By kind: where the API server has them.
_PATHS = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "NodeClass": "/apis/eks.amazonaws.com/v1/nodeclasses",
}


class CustomObjects:
    def __init__(self, api: KubeApi, field_manager: str = "tidemill") -> None:
        self._api, self._field_manager = api, field_manager

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """Never forced: a field of another manager is Refused, with its name."""
        path = f"{_PATHS[wanted['kind']]}/{wanted['metadata']['name']}"
        self._api.send(
            "PATCH", path, msgspec.json.encode(wanted), content_type=APPLY_PATCH,
            params={"fieldManager": self._field_manager},
        )  # fmt: skip

    def remove(self, kind: str, name: str) -> None:
        self._api.send("DELETE", f"{_PATHS[kind]}/{name}")

    def listed(self, kind: str) -> Sequence[Mapping[str, Any]]:
        return list(all_pages(self._api, _PATHS[kind], kind))


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: list[dict[str, Any]] | None = None


_page = msgspec.json.Decoder(_Page)


def all_pages(
    api: KubeApi, path: str, kind: str, label: str = "", field: str = ""
) -> Iterator[Mapping[str, Any]]:
    """Every object at this path; none where the kind is not served. Retryable: an answer that is no list."""
    selectors = {"labelSelector": label, "fieldSelector": field}
    params: dict[str, str | int] = {
        "limit": _PAGE,
        **{key: given for key, given in selectors.items() if given},
    }
    while True:
        try:
            page = _page.decode(api.get(path, _given(params)))
        except Gone as gone:
            if gone.code == NOT_SERVED:
                return
            raise
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # of a proxy in between, or cut off
            raise Retryable(
                f"{api.server} sent a list of {kind}s that cannot be read: {error}", code="answer"
            ) from None
        yield from page.items or ()
        if not page.metadata.continue_:
            return
        params["continue"] = page.metadata.continue_


def _given(params: dict[str, str | int]) -> Params:
    return params
