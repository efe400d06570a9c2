"""Messages as AWS's pages print them, and what chance makes of them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

BLOCK, INSTANCE = "cr-0123456789abcdef0", "i-0123456789abcdef0"


def envelope(
    source: str, detail_type: str, detail: dict[str, Any], key: str = "detail-type"
) -> dict[str, Any]:
    return {
        "version": "0", "id": "7bf73129-1428-4cd3-a780-95db273d1602", key: detail_type, "source": source,
        "account": "123456789012", "time": "2026-11-19T10:50:00Z", "region": "us-east-1", "resources": [],
        "detail": detail,
    }  # fmt: skip


HOOK = {
    "LifecycleActionToken": "87654321-4321-4321-4321-210987654321", "AutoScalingGroupName": "mill-train",
    "LifecycleHookName": "tidemill-drain", "EC2InstanceId": INSTANCE,
    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
}  # fmt: skip
_ENDS = {"capacity-reservation-id": BLOCK, "end-date": "2026-11-19T11:30:00Z"}
_HEALTH = {
    "service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": INSTANCE}],
}  # fmt: skip
OURS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("block-delivered", envelope("aws.ec2", "Capacity Block Reservation Delivered", _ENDS)),
    ("block-delivered", envelope("aws.ec2", "Capacity Block Delivered", _ENDS)),
    ("block-expiring", envelope("aws.ec2", "Capacity Block Reservation Expiration Warning", _ENDS)),
    ("block-expiring", envelope("aws.ec2", "Capacity Block Expiration Warning", _ENDS, key="detail_type")),
    (
        "block-interruption",
        envelope(
            "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning",
            {
                "instance-id": INSTANCE, "instance-action": "terminate", "availability-zone-id": "use1-az1",
                "instance-termination-time": "2026-11-19T11:00:00Z", "instance-lifecycle": "capacity-block",
            },
        ),
    ),
    ("spot-interruption", envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": INSTANCE})),
    ("rebalance", envelope("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": INSTANCE})),
    (
        "instance-state",
        envelope(
            "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": INSTANCE, "state": "running"}
        ),
    ),
    ("lifecycle-hook", envelope("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", HOOK)),
    ("lifecycle-hook", envelope("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", HOOK)),
    ("lifecycle-hook", HOOK),
    ("lifecycle-hook", {"Type": "Notification", "Message": json.dumps(HOOK)}),
    ("health", envelope("aws.health", "AWS Health Event", _HEALTH)),
)  # fmt: skip

_ODD: tuple[Any, ...] = (
    None, True, -1, 1e308, "", "x" * 3000, [], {}, [[[[]]]], {"a": {"b": {"c": None}}}, "\u202e\x00'; DROP TABLE",
    "i-0123456789abcdef0; rm -rf /", "cr-*", "../../etc/passwd", "${jndi:ldap://x}", ["i-0123456789abcdef0"],
)  # fmt: skip


def mangled(luck: Random) -> str:
    """A message, or the ruins of one."""
    message: Any = json.loads(json.dumps(luck.choice(OURS)[1]))
    for _ in range(luck.randint(1, 4)):
        _change(message, luck)
    text = json.dumps(message)
    match luck.randrange(6):
        case 0:
            return text[: luck.randrange(len(text))]
        case 1:
            at = luck.randrange(len(text))
            return text[:at] + chr(luck.randrange(0x20, 0x2FFF)) + text[at + 1 :]
        case 2:
            return json.dumps({"Message": json.dumps({"Message": text})})
        case 3:
            return luck.choice(("", "null", "[]", "NaN", "[" * 50_000, '"Message"', "{" * 9, "\x00" * 40))
        case _:
            return text


def _change(message: Any, luck: Random) -> None:
    """Somewhere in it: a key goes, a value becomes odd, or a stranger's id stands where ours did."""
    where = message
    while isinstance(where, dict) and where:
        key = luck.choice(sorted(where))
        if isinstance(where[key], dict) and where[key] and luck.random() < 0.7:
            where = where[key]
            continue
        match luck.randrange(3):
            case 0:
                del where[key]
            case 1:
                where[key] = luck.choice(_ODD)
            case _:
                where[key] = f"i-{luck.randrange(16**17):017x}"
        return
