"""An account on the wire in which much will go wrong: groups that outlive a block, idle slots, left-overs."""

from __future__ import annotations

from datetime import timedelta

from tests.sim.account import ZONES
from tests.wire.groups import make_cluster, make_group, make_node_group, schedule, subnet, template
from tests.wire.server_builder import SimulatedAws, specs
from tidemill.model.capacity import Reservation

KARPENTER = {"karpenter.sh/nodepool": "gpu", "karpenter.sh/nodeclaim": "gpu-x7"}


class Troubled:
    """Time stands at the start but for some minutes in which instances come up."""

    def __init__(self, aws: SimulatedAws) -> None:
        self.aws = aws
        self.ours: Reservation = aws.block(name="ours", count=8, duration="1d")
        self.theirs: Reservation = aws.block(
            name="theirs", count=4, owned=False, zone=ZONES[1], duration="2d"
        )
        self.later: Reservation = aws.block(name="later", count=2, start="2d", zone=ZONES[2], duration="3d")
        # A group that nobody brings to zero, with a subnet too many and no hook.
        make_group(
            aws, self.ours, "forever", DesiredCapacity=2, Tags=[],
            VPCZoneIdentifier=f"{subnet(aws)},{subnet(aws, ZONES[1])}",
            LaunchTemplate=template(aws, self.ours, "lt-of-nobody", TagSpecifications=None),
        )  # fmt: skip
        # One that goes to zero an hour before the end, and has a hook that takes longer than what is left.
        make_group(aws, self.ours, DesiredCapacity=1)
        schedule(aws, "down", self.end(self.ours) - timedelta(minutes=50), 0)
        aws.client("autoscaling").put_lifecycle_hook(
            AutoScalingGroupName="g", LifecycleHookName="drain", HeartbeatTimeout=1800,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING", DefaultResult="CONTINUE",
        )  # fmt: skip
        make_group(aws, None, "web", DesiredCapacity=0)
        make_cluster(aws)
        lt = template(aws, self.ours, "lt-eks-bare", TagSpecifications=None)
        made = make_node_group(aws, self.ours, template=lt)
        aws.wait("4m")
        aws.client("eks").update_nodegroup_config(
            clusterName="ml", nodegroupName=made["nodegroupName"], scalingConfig={"desiredSize": 1}
        )
        aws.run(self.ours.id, TagSpecifications=specs("instance", KARPENTER))
        aws.run(
            self.theirs.id, TagSpecifications=specs("instance", {"Name": "left-over"}),
            SubnetId=subnet(aws, ZONES[1]),
        )  # fmt: skip
        aws.wait("5m")

    @staticmethod
    def end(block: Reservation):
        assert block.end is not None
        return block.end
