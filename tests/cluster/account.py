"""The simulated account as the real tier uses it: launches, purchases, its clock, its faults, what its kubelets saw."""

from __future__ import annotations

import json
import urllib.request
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import boto3

from controlplane.api import Api, eventually
from tests.cluster.programs import SimulatedAws

NODE_CONFIG = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      registerWithTaints: []
    flags: ["--node-labels=tidemill.dev/pool={pool}"]

--//--
"""


class Account:
    def __init__(self, aws: SimulatedAws, api: Api) -> None:
        self.aws, self._api = aws, api

    # --- what only the simulator has ----------------------------------------------------------------

    def ask(self, path: str, given: Any = None) -> Any:
        """GET, or POST where something is given."""
        data = None if given is None else json.dumps(given).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.aws.endpoint}/tidemill/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def now(self) -> datetime:
        return datetime.fromisoformat(self.ask("clock")["now"])

    def speed(self, speed: float) -> None:
        self.ask("speed", {"speed": speed})

    def advance(self, to: str) -> None:
        """Time passes at once until then."""
        self.ask("advance", {"to": to})

    def fault(self, name: str, **more: Any) -> str:
        """Strike, or arm for what comes next: which instances or nodes were struck."""
        return str(self.ask("faults", {"fault": name, **more}).get("struck") or "")

    def journal(self) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.ask("journal")
        return answer

    def kubelets(self) -> Any:
        return self.ask("kubelets")

    def pods(self) -> dict[str, dict[str, Any]]:
        """What the kubelets recorded, by name of the pod; of several the last."""
        return {row["pod"].partition("/")[2]: row for row in self.kubelets()["pods"]}

    # --- AWS ----------------------------------------------------------------------------------------

    def client(self, service: str) -> Any:
        given = self.aws.told["environment"]
        return boto3.client(
            service, endpoint_url=self.aws.endpoint, region_name=given["AWS_REGION"],
            aws_access_key_id=given["AWS_ACCESS_KEY_ID"], aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    @cached_property
    def ec2(self) -> Any:
        return self.client("ec2")

    def instances(self, *states: str) -> list[dict[str, Any]]:
        pages = self.ec2.get_paginator("describe_instances").paginate()
        found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return [i for i in found if not states or i["State"]["Name"] in states]

    def instances_on(self, block: str, *states: str) -> list[dict[str, Any]]:
        return [i for i in self.instances(*states) if i.get("CapacityReservationId") == block]

    def state_of(self, instance: str) -> str:
        return next(str(i["State"]["Name"]) for i in self.instances() if i["InstanceId"] == instance)

    def launch(
        self, count: int = 1, *, kind: str = "g6.12xlarge", pool: str = "train", **more: Any
    ) -> list[str]:
        """By somebody else, on demand unless RunInstances is given `more`; the ids."""
        launched = self.ec2.run_instances(
            ImageId=self.aws.told["images"]["x86_64"], InstanceType=kind, MinCount=count, MaxCount=count,
            UserData=NODE_CONFIG.format(pool=pool),
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "deployment", "Value": "test"}]}],
            **more,
        )  # fmt: skip
        return [str(one["InstanceId"]) for one in launched["Instances"]]

    def joined(self, *instances: str, with_gpus: bool = True, timeout_s: float = 60.0) -> list[str]:
        """The nodes they became."""

        def all_there() -> list[str]:
            found = {}
            for node in self._api.items("/api/v1/nodes"):
                if not with_gpus or "nvidia.com/gpu" in node["status"]["allocatable"]:
                    found[node["spec"]["providerID"].rsplit("/", 1)[-1]] = node["metadata"]["name"]
            return [found[id_] for id_ in instances] if set(instances) <= set(found) else []

        return eventually(all_there, timeout_s=timeout_s, what=f"{len(instances)} instances are nodes")

    def purchase(self, count: int, ends: str) -> str:
        """A block that starts within the hour and ends then, bought as a person would by hand: its id."""
        now, last = self.now(), datetime.fromisoformat(ends)
        offers = self.ec2.describe_capacity_block_offerings(
            InstanceType="p5.48xlarge", InstanceCount=count, CapacityDurationHours=24,
            StartDateRange=now, EndDateRange=last,
        )["CapacityBlockOfferings"]  # fmt: skip
        soon = [offer for offer in offers if offer["StartDate"] - now < timedelta(hours=1)]
        wanted = [offer for offer in soon if offer["EndDate"] == last]
        assert wanted, f"nothing starts soon and ends at {ends}: {offers}"
        bought = self.ec2.purchase_capacity_block(
            CapacityBlockOfferingId=wanted[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
        )
        return str(bought["CapacityReservation"]["CapacityReservationId"])

    def is_listed(self, block: str) -> bool:
        shown = self.ec2.describe_capacity_reservations()["CapacityReservations"]
        return block in {one["CapacityReservationId"] for one in shown}

    def end_of(self, block: str) -> datetime:
        (found,) = self.ec2.describe_capacity_reservations(CapacityReservationIds=[block])[
            "CapacityReservations"
        ]
        end: datetime = found["EndDate"]
        return end

    def queue(self) -> str:
        """A queue that EventBridge sends everything of EC2's and Auto Scaling's to: its URL, for a controller."""
        sqs, events = self.client("sqs"), self.client("events")
        url = str(sqs.create_queue(QueueName="real-events")["QueueUrl"])
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        events.put_rule(Name="real", EventPattern=json.dumps({"source": ["aws.ec2", "aws.autoscaling"]}))
        events.put_targets(Rule="real", Targets=[{"Id": "queue", "Arn": arn}])
        return url


def took_s(row: dict[str, Any], since: str = "startedAt", until: str = "endedAt") -> float:
    return (datetime.fromisoformat(row[until]) - datetime.fromisoformat(row[since])).total_seconds()
