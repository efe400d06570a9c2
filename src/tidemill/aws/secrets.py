"""Secrets Manager, and what RDS and ElastiCache say of the servers that secrets point to.

Values are in `SecretStr` from the answer on. Every secret that is made carries the owner tag. The SDK adds the tokens
that make a repeated CreateSecret or PutSecretValue the same call.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import SecretStr

from tidemill.aws.errors import CallKind
from tidemill.aws.session import Aws
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable
from tidemill.platform.secrets.check import DatabaseServer, StoredSecret
from tidemill.spec import names

_SERVICE = "secretsmanager"
_EXISTS = "ResourceExistsException"


class SecretsManager:
    """`platform.secrets.check.SecretStore` and `Databases` of one account and region."""

    def __init__(self, aws: Aws, deployment: str) -> None:
        self._aws, self._deployment = aws, deployment

    def read(self, name: str) -> StoredSecret | None:
        try:
            about = self._read(_SERVICE, "DescribeSecret", SecretId=name)
            deleted_at = _instant(about.get("DeletedDate"))
            value = None if deleted_at is not None else self._value(name)
        except Gone:
            return None
        return StoredSecret(
            name,
            value,
            changed_at=_instant(about.get("LastChangedDate")) or _instant(about.get("CreatedDate")),
            rotates=about.get("RotationEnabled") is True,
            deleted_at=deleted_at,
        )

    def _value(self, name: str) -> SecretStr | None:
        """None: there is a name and no current version. Bytes are no text of ours."""
        try:
            text = self._read(_SERVICE, "GetSecretValue", SecretId=name).get("SecretString")
        except Gone:
            return None
        return SecretStr(text if isinstance(text, str) else "")

    def create(self, name: str, value: SecretStr, description: str) -> bool:
        try:
            self._aws.call(
                _SERVICE, "CreateSecret", CallKind.CHANGE, Name=name, SecretString=value.get_secret_value(),
                Description=description, Tags=[{"Key": names.TAG_OWNER, "Value": self._deployment}],
            )  # fmt: skip
        except (Refused, Retryable) as error:
            if error.code != _EXISTS:
                raise _readable(error) from None
            return False
        return True

    def put(self, name: str, value: SecretStr) -> None:
        try:
            self._aws.call(
                _SERVICE, "PutSecretValue", CallKind.CHANGE, SecretId=name, SecretString=value.get_secret_value()
            )  # fmt: skip
        except Refused as error:
            raise _readable(error) from None

    # --- the servers that secrets point to ------------------------------------------------------------

    def server(self, instance: str) -> DatabaseServer | None:
        try:
            found = self._read("rds", "DescribeDBInstances", DBInstanceIdentifier=instance)
        except Gone:
            return None
        record = _first(found.get("DBInstances"))
        endpoint = record.get("Endpoint") or {}
        login = record.get("MasterUserSecret") or {}
        return DatabaseServer(
            host=str(endpoint.get("Address") or ""),
            port=int(endpoint.get("Port") or 5432),
            login=_name_of(str(login.get("SecretArn") or "")),
        )

    def redis_host(self, replication_group: str) -> str | None:
        try:
            found = self._read(
                "elasticache", "DescribeReplicationGroups", ReplicationGroupId=replication_group
            )
        except Gone:
            return None
        record = _first(found.get("ReplicationGroups"))
        shard = _first(record.get("NodeGroups"))
        endpoint = record.get("ConfigurationEndpoint") or shard.get("PrimaryEndpoint") or {}
        address = endpoint.get("Address")
        return f"{address}:{endpoint.get('Port') or 6379}" if address else None

    def _read(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        try:
            return self._aws.read(service, operation, **given)
        except Refused as error:
            raise _readable(error) from None


def _readable(error: Exception) -> Exception:
    """A request that AWS rejects leaves open what is there: for the caller that is a look that failed."""
    if isinstance(error, NotAllowed | Retryable):
        return error
    return Retryable(str(error), code=getattr(error, "code", ""))


def _first(records: Any) -> Mapping[str, Any]:
    if isinstance(records, list) and records and isinstance(records[0], dict):
        return records[0]
    return {}


def _instant(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) else None


def _name_of(arn: str) -> str:
    """arn:…:secret:NAME-XXXXXX. Secrets Manager adds six characters to the name."""
    tail = arn.rpartition(":secret:")[2]
    return tail[:-7] if len(tail) > 7 and tail[-7] == "-" else tail
