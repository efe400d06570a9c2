"""EventBridge and a hook's own target: events of the account, delivered to the queues that asked for them.

moto keeps rules, patterns, targets and queues; the account says what happens. An event travels in a whole envelope, as
AWS writes it; a hook's own target gets the bare detail, and first a test. On the way events can be lost, doubled and
late.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidemill.sim.cloud.lifecycle_hooks import TERMINATE_ACTION
from tidemill.sim.cloud.scaling_group import AutoScalingGroup, LifecycleHook
from tidemill.sim.timeline import Timeline, seeded_uuid
from tidemill.sim.wakes import Wakes
from tidemill.sim.wire import group_format
from tidemill.spec.units import format_instant

if TYPE_CHECKING:
    from tidemill.sim.wire.state import Wire


class EventBus:
    """Listens to the account from the moment it is made. An account with another server has another bus as well."""

    def __init__(self, wire: Wire, timeline: Timeline) -> None:
        self._wire = wire
        self._sent = 0
        self.transport = Wakes(timeline, self._deliver)
        wire.cloud.events.listeners.append(self._take)
        wire.cloud.groups.hooks.tested.append(self._test)

    def close(self) -> None:
        self._wire.cloud.events.listeners.remove(self._take)
        self._wire.cloud.groups.hooks.tested.remove(self._test)

    def _take(self, detail_type: str, source: str, detail: Mapping[str, Any]) -> None:
        self._sent += 1
        envelope = {
            "version": "0",
            "id": seeded_uuid(self._wire.cloud.seed, "event", detail_type, str(self._sent)),
            "detail-type": detail_type,
            "source": source,
            "account": self._wire.account,
            "time": format_instant(self._wire.clock.now()),
            "region": self._wire.region,
            "resources": self._resources(detail),
            "detail": dict(detail),
        }
        self.transport(json.dumps({"envelope": envelope}))
        if detail_type == TERMINATE_ACTION:
            group = self._wire.cloud.groups.get(str(detail["AutoScalingGroupName"]))
            target = group.hooks[str(detail["LifecycleHookName"])].target
            if target:
                self.transport(json.dumps({"target": target, "body": self._bare(detail)}))

    def _resources(self, detail: Mapping[str, Any]) -> list[str]:
        """The ARNs of what it is about."""
        region, account = self._wire.region, self._wire.account
        ec2 = f"arn:aws:ec2:{region}:{account}"
        found = []
        if "AutoScalingGroupName" in detail:
            group = self._wire.cloud.groups.find(str(detail["AutoScalingGroupName"]))
            found += [group_format.arn(self._wire, group)] if group is not None else []
        if "capacity-reservation-id" in detail:
            found.append(f"{ec2}:capacity-reservation/{detail['capacity-reservation-id']}")
        ids = [detail.get("instance-id"), detail.get("EC2InstanceId")]
        ids += [entity.get("entityValue") for entity in detail.get("affectedEntities", ())]
        return [*found, *(f"{ec2}:instance/{id_}" for id_ in ids if id_)]

    def _bare(self, detail: Mapping[str, Any]) -> dict[str, Any]:
        """What Auto Scaling sends straight to a queue: the detail, and beside it what an envelope would say."""
        at = format_instant(self._wire.clock.now())
        return {"Service": "AWS Auto Scaling", "Time": at, "AccountId": self._wire.account, **detail}

    def _test(self, group: AutoScalingGroup, hook: LifecycleHook) -> None:
        body = {
            "Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": group.name,
            "AccountId": self._wire.account, "Time": format_instant(self._wire.clock.now()),
        }  # fmt: skip
        self._send(hook.target, json.dumps(body))

    # --- the other end of the road ------------------------------------------------------------------

    def _deliver(self, parcel: str) -> None:
        carried = json.loads(parcel)
        if "target" in carried:
            self._send(carried["target"], json.dumps(carried["body"]))
            return
        envelope, buses = carried["envelope"], self._wire.moto("events").event_buses
        for rule in buses["default"].rules.values() if "default" in buses else ():
            if rule.state == "ENABLED" and rule.event_pattern.matches_event(envelope):
                for target in rule.targets:
                    self._send(target["Arn"], json.dumps(envelope))

    def _send(self, target_arn: str, body: str) -> None:
        """To a queue or a topic. One that is not there gets nothing, as with AWS."""
        service, name = target_arn.split(":")[2], target_arn.rsplit(":", 1)[-1]
        sends: dict[str, Callable[[], Any]] = {
            "sqs": lambda: self._wire.moto("sqs").send_message(queue_name=name, message_body=body),
            "sns": lambda: self._wire.moto("sns").topics[target_arn].publish(body),
        }
        send = sends.get(service)
        if send is not None and self._is_there(service, name, target_arn):
            send()

    def _is_there(self, service: str, name: str, arn: str) -> bool:
        return (
            name in self._wire.moto("sqs").queues
            if service == "sqs"
            else arn in self._wire.moto("sns").topics
        )
