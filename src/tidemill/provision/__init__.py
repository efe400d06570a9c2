"""How a launch becomes instances: the provisioner of a pool says which file does it.

native: `native`, RunInstances. asg: `asg`, an Auto Scaling group per source. managed: `managed`, an EKS node group per
source. karpenter: `karpenter`, NodePools that Karpenter launches from. For groups, `wanted_groups` says which there
should be, `group_changes` compares, `group_reconciler` changes them, `group_launcher` launches through them. What a
node boots is in `launch_template`, `user_data`, `images` and `efa`; `provisioned_cloud` makes a `Cloud` of all.
"""

from tidemill.provision.provisioned_cloud import ProvisionedCloud as ProvisionedCloud
