"""Objects of the External Secrets Operator, and the keys of Secrets: `platform.secrets.sync.SecretObjects`.

Of a Secret only the keys are kept; its values are dropped as soon as the answer is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from tidemill.kube.api import MERGE_PATCH, KubeApi
from tidemill.model.errors import Gone, Retryable

_API = "/apis/external-secrets.io/v1"
# The operator looks again whenever an annotation changes; this one is its documentation's.
FORCE_SYNC = "force-sync"


class _Secret(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


class ExternalSecretObjects:
    def __init__(self, api: KubeApi, field_manager: str = "tidemill") -> None:
        self._api, self._field_manager = api, field_manager

    def store(self, name: str) -> Mapping[str, Any] | None:
        return self._get(f"{_API}/clustersecretstores/{name}")

    def external_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self._get(f"{_API}/namespaces/{namespace}/externalsecrets/{name}")

    def secret_keys(self, namespace: str, name: str) -> frozenset[str] | None:
        try:
            answer = self._api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        except Gone:
            return None
        try:
            return frozenset(msgspec.json.decode(answer, type=_Secret).data or ())
        except (msgspec.DecodeError, UnicodeDecodeError):  # its text could be part of a value
            raise Retryable(
                f"{self._api.server} sent a Secret {name} that cannot be read", code="answer"
            ) from None

    def force_sync(self, namespace: str, name: str, at: datetime) -> None:
        body = {"metadata": {"annotations": {FORCE_SYNC: str(int(at.timestamp()))}}}
        self._api.send(
            "PATCH", f"{_API}/namespaces/{namespace}/externalsecrets/{name}", msgspec.json.encode(body),
            content_type=MERGE_PATCH, params={"fieldManager": self._field_manager},
        )  # fmt: skip

    def _get(self, path: str) -> Mapping[str, Any] | None:
        try:
            answer: Any = msgspec.json.decode(self._api.get(path))
        except Gone:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Retryable(
                f"{self._api.server} sent an object that cannot be read: {error}", code="answer"
            ) from None
        return answer if isinstance(answer, dict) else {}
