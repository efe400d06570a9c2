"""Facts of the account for the checklist: cluster, database, Redis, bucket, subnets, our blocks. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidemill.aws.account import AwsAccount
from tidemill.aws.account_survey import ReadOnlyAws
from tidemill.aws.errors import CallKind
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable
from tidemill.platform.checklist.views import ClusterFacts, DatabaseFacts, RedisFacts
from tidemill.spec import names


class AwsPlatform:
    """`platform.checklist.AccountView`."""

    def __init__(self, aws: ReadOnlyAws, account: AwsAccount, deployment: str) -> None:
        self._aws, self._account, self._deployment = aws, account, deployment

    def cluster(self, name: str) -> ClusterFacts | None:
        record = self._one("eks", "DescribeCluster", "cluster", name=name)
        if record is None:
            return None
        return ClusterFacts(str(record.get("version") or ""), record.get("status") == "ACTIVE")

    def database(self, instance: str) -> DatabaseFacts | None:
        record = self._one("rds", "DescribeDBInstances", "DBInstances", DBInstanceIdentifier=instance)
        if record is None:
            return None
        return DatabaseFacts(
            version=str(record.get("EngineVersion") or ""),
            available=record.get("DBInstanceStatus") == "available",
            public=record.get("PubliclyAccessible") is not False,
            encrypted=record.get("StorageEncrypted") is True,
            managed_login=bool(record.get("MasterUserSecret")),
        )

    def redis(self, group: str) -> RedisFacts | None:
        record = self._one(
            "elasticache", "DescribeReplicationGroups", "ReplicationGroups", ReplicationGroupId=group
        )
        if record is None:
            return None
        return RedisFacts(
            available=record.get("Status") == "available",
            tls=record.get("TransitEncryptionEnabled") is True,
            token=record.get("AuthTokenEnabled") is True,
        )

    def has_bucket(self, name: str) -> bool:
        return self._one("s3", "GetBucketLocation", "", Bucket=name) is not None

    def zones_of(self, subnets: Sequence[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        asked = [{"Name": "subnet-id", "Values": list(subnets)}]
        for record in self._aws.pages("ec2", "DescribeSubnets", "Subnets", Filters=asked):
            with suppress(KeyError, TypeError):
                found[record["SubnetId"]] = record["AvailabilityZone"]
        return found

    def blocks(self) -> Sequence[Reservation]:
        return [
            one
            for one in self._account.reservations()
            if one.kind is SourceKind.BLOCK and dict(one.tags).get(names.TAG_OWNER) == self._deployment
        ]

    def _one(self, service: str, operation: str, key: str, **given: Any) -> Mapping[str, Any] | None:
        """The record under `key`, or the first of a list there; None: AWS says that there is none."""
        try:
            answer = self._aws.call(service, operation, CallKind.READ, **given)
        except Gone:
            return None
        except Refused as error:
            if isinstance(error, NotAllowed):
                raise
            raise Retryable(str(error), code=error.code) from None
        record = answer.get(key) if key else answer
        if isinstance(record, list):
            record = record[0] if record else None
        return record if isinstance(record, dict) else None
