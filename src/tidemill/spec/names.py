"""Every label, annotation, taint and tag Tidemill reads or writes, in one place.

They are an interface: users write some of them, other tools select on others.
"""

from tidemill.model.resources import CPU as CPU
from tidemill.model.resources import MEMORY as MEMORY
from tidemill.model.resources import PODS as PODS

GROUP = "tidemill.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# Tags on what is made in AWS.
TAG_OWNER = "deployment"  # the owner tag: without it nothing is modified or terminated
TAG_POOL = f"{GROUP}/pool"
TAG_INTENT = f"{GROUP}/intent"
TAG_PROVISIONER = f"{GROUP}/provisioner"
TAG_TEMPLATE = f"{GROUP}/template"  # on a group: fingerprint of its launch template
TAG_FEE = f"{GROUP}/fee-usd"  # on a block: the fee, which EC2 does not report later

# Labels and taints on nodes.
LABEL_POOL = f"{GROUP}/pool"
LABEL_SOURCE = f"{GROUP}/source"  # reservation id, or "spot" / "on-demand"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_TYPE = "node.kubernetes.io/instance-type"
LABEL_ARCH = "kubernetes.io/arch"
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_NODE_CLASS = f"{GROUP}/node-class-hash"  # what the node was made from; see spec.fingerprint
TAINT_STARTUP = f"{GROUP}/starting"  # until the engine marks the node ready
TAINT_DRAINING = f"{GROUP}/draining"  # value: why
# Services leave the node's source: only admitted jobs tolerate it. Value: the end (`units`).
TAINT_ENDING = f"{GROUP}/ending"
DRAINING_SINCE = f"{GROUP}/draining-since"  # annotation beside that taint; effect NoSchedule
DRAIN_REASON = f"{GROUP}/drain-"  # prefix of annotations: `DrainReason.to_annotations()`, as in drain-at
OPENED_AT = f"{GROUP}/opened-at"  # annotation: when the startup taint came off
# Annotations of the agent that runs on a node; those the engine writes are not the agent's to write.
DEADLINE_AGENT = f"{GROUP}/deadline-agent"  # its version
AGENT_ENDS_AT = f"{GROUP}/agent-ends-at"  # by when it empties the node: ENDS_AT, else what the boot said
NODE_CHECK = f"{GROUP}/node-check"  # label "required": the startup taint stays until the node check's verdict
TAINT_HELD = f"{GROUP}/held"  # only admitted pods and services of ours tolerate it
NODE_PHASE = f"{GROUP}/phase"  # annotation, for people: where the node is in its life
CONDITION_TAKES_PODS = f"{GROUP}/TakesPods"  # for people: True in the phase ready; the reason is the phase
CONDITION_GPUS_VERIFIED = f"{GROUP}/GPUsVerified"  # the node check's verdict: "True" or "False"

# What is ours and how it is held. The rules are in kube/admission/rules.py:
MANAGED = f"{GROUP}/managed"  # label "true" or "false", on a namespace, a workload or a pod; the nearest one decides
HELD_BY = (
    f"{GROUP}/held-by"  # label on a Job, JobSet or PyTorchJob that *we* suspended; goes when it is admitted
)
HELD_BY_US = "tidemill"  # its value
# Annotation on what we admitted by changing its template: the keys of the node selector that are our pins, with commas.
PINS = f"{GROUP}/pins"
# Annotation in the template of a Job that was admitted whole, and so on its pods: they were admitted with it.
ADMITTED = f"{GROUP}/admitted"
JOB = f"{GROUP}/job"  # label on what `tidemill job run` made: the job's name
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"  # label: Kueue suspends and starts it, so we do not

# On pods. Written by users (or their platform):
GANG = f"{GROUP}/gang"
GANG_SIZE = f"{GROUP}/gang-size"
EXPECTED_DURATION = f"{GROUP}/expected-duration"
CHECKPOINT_TIME = f"{GROUP}/checkpoint-time"
CHECKPOINT_EVERY = f"{GROUP}/checkpoint-every"  # its presence makes a job resumable
LOAD_TIME = f"{GROUP}/load-time"  # from container start to useful work (model load)
OVERFLOW = f"{GROUP}/overflow"  # "true": may run on paid-by-the-hour sources of its pool
TEAM = f"{GROUP}/team"
# ... and on the template of a service:
HANDOVER = f"{GROUP}/handover"  # rollout, scale, paired or evict: how it leaves a source that ends
HANDOVER_PAIR = f"{GROUP}/handover-pair"  # paired: the set that takes over, such as StatefulSet/chat-green
MAY_SCALE = f"{GROUP}/may-scale"  # "true": nothing else changes its number of replicas
MIN_AVAILABLE = f"{GROUP}/min-available"  # for a service without a PodDisruptionBudget
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"  # the name users already write
# Written by the engine:
GATE = f"{GROUP}/admission"
ENDS_AT = f"{GROUP}/ends-at"
CHECKPOINT_REQUESTED = f"{GROUP}/checkpoint-requested-at"
RESTARTED_FOR = f"{GROUP}/restarted-for"  # on a template: the end it was last touched for
ADDED_REPLICAS = (
    f"{GROUP}/added-replicas"  # on a service: how many replicas a hand-over added and will remove
)
APPLIED = f"{GROUP}/applied"  # on Karpenter's objects: short for what was last asked of them
CHECKPOINT_DONE = f"{GROUP}/checkpoint-done-at"  # written by the pod itself
EARLIEST_START = f"{GROUP}/earliest-start"  # on an Event that says why something waits

# Resource names.
NVIDIA_GPU = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neuron"
EFA = "vpc.amazonaws.com/efa"
ACCELERATORS = (NVIDIA_GPU, NEURON)
