"""The Platform document: the cluster, spending limits, who approves purchases, Karpenter, and where alerts go.

A secret is never in a document: the document names an environment variable or a file.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from tidemill.model.alerts import AlertKind, Severity
from tidemill.spec.document import Document, Model, Name
from tidemill.spec.platform_services import BucketName, Database, EngineChart, Redis
from tidemill.spec.units import Count, Duration, Length


class ClusterRef(Model):
    name: str
    """EKS cluster name."""
    version: str = "1.33"
    """Kubernetes version of the cluster, in quotes."""
    endpoint: str = ""
    """Address of the API server, with https://: native and asg nodes need it to join, and `tidemill run` refuses a
    kubeconfig that reaches another one."""
    certificate_authority: str = ""
    """Certificate authority of the API server, in base64."""
    service_cidr: str = ""
    """Address range of the cluster's services."""


# --- spending and approval ----------------------------------------------------------------------


class Budget(Model):
    """Spending limits. Without a budget nothing is bought."""

    per_purchase_usd: Count = Field(default=0, ge=0)
    """The highest upfront fee of one block."""
    monthly_usd: Count = Field(default=0, ge=0)
    """The most that block fees and hourly prices may cost together in a calendar month (UTC). Not given: nothing is
    bought, and pools without blocks or ODCRs are held by their limits alone."""


class Approval(Model):
    """Who must approve before a block is bought. The default proposes blocks and never buys."""

    mode: Literal["propose", "one", "two", "auto"] = "propose"
    """propose: never buy. one, two: buy when that many people have approved. auto: buy without asking up to
    `autoMaxFeeUsd`. Never beyond the budget."""
    approvers: tuple[str, ...] = ()
    """Who may approve: ARNs as `aws sts get-caller-identity` prints them. Empty: everybody who may write to the ledger.
    The proposer may never approve, listed or not."""
    sessions_are_proved: bool = False
    """Set this only if your trust policy or identity provider sets the session name of assumed roles, so that it
    identifies a person. Otherwise all sessions of a role count as one person, except those of IAM Identity Center."""
    two_above_usd: Count | None = Field(default=None, ge=0)
    """Fees above this need two approvals, whatever the mode."""
    auto_max_fee_usd: Count = Field(default=0, ge=0)
    """With mode auto: fees above this still need an approval."""
    auto_monthly_usd: Count | None = Field(default=None, ge=0)
    """With mode auto: a purchase needs an approval if it brings the fees of a calendar month (UTC) above this."""
    expires_after: Duration = timedelta(hours=24)
    """A proposal expires after this time, approved or not, if it has not been bought."""


# IAM Identity Center makes these roles, nobody else can, and sets the session name to the user it signed in.
_IDENTITY_CENTER_ROLE = "AWSReservedSSO_"


def principal(arn: str, *, sessions_are_proved: bool = False) -> str:
    """The part of a caller's ARN that the caller could not choose. A name that is not an ARN is returned unchanged.

    The proposer must not approve, and two approvals must come from two people. Whoever may assume a role chooses the
    session name, so two sessions of one role may be one person. Only a session name that somebody else sets tells
    people apart. Where that is not known, this errs towards "the same person".
    """
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sts":
        return arn
    kind, _, name = parts[5].partition("/")
    head = ":".join(parts[:5])
    if kind == "federated-user":  # an IAM user who asks for such a session names it freely
        return arn if sessions_are_proved else f"{head}:{kind}"
    role, _, session = name.partition("/")
    if kind != "assumed-role" or not session:
        return arn
    if sessions_are_proved or role.startswith(_IDENTITY_CENTER_ROLE):
        return arn
    return f"{head}:{kind}/{role}"


# --- namespaces ----------------------------------------------------------------------


class NamespaceLimit(Model):
    """The most that pods of some namespaces may use at once, on the nodes of all pools together."""

    namespaces: tuple[
        Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)], ...
    ] = Field(min_length=1, max_length=100)
    """Names of namespaces. Of several, the limit is for all of them together."""
    gpus: Count = Field(ge=0)
    """GPUs or Neuron devices that their pods request, admitted ones that have no node yet included. Pods on a node that
    is being emptied are not counted, so that those who take over from them need not wait."""


# --- Karpenter ----------------------------------------------------------------------

KarpenterVersion = tuple[int, int]

# The first version that can, from Karpenter's release notes. Before 1.8, of several blocks of one type and zone under
# one tag only the first is seen.
KARPENTER_CAPACITY_BLOCKS: Final[KarpenterVersion] = (1, 6)
KARPENTER_STATIC_CAPACITY: Final[KarpenterVersion] = (1, 8)
KARPENTER_SEVERAL_BLOCKS: Final[KarpenterVersion] = (1, 8)  # of one type and zone under one tag
KARPENTER_NETWORK_INTERFACES: Final[KarpenterVersion] = (1, 11)


class KarpenterRef(Model):
    """The Karpenter that launches for pools with `provisioner: karpenter`. Blocks need Karpenter 1.6 or later."""

    version: Annotated[str, Field(pattern=r"^v?\d+\.\d+(\.\d+)?$")] = ""
    """Version of the Karpenter in the cluster, in quotes: `"1.8.2"`. Not needed with EKS Auto Mode."""
    auto_mode: bool = False
    """EKS Auto Mode launches the nodes. AWS keeps it up to date; nodes run Bottlerocket and live at most 21 days."""
    static_capacity: bool = False
    """The feature gate StaticCapacity is on (Karpenter 1.8): nodes of pools with `warm` stay up without pods."""

    def supports(self, since: KarpenterVersion) -> bool:
        """Whether this Karpenter is at least that version. AWS keeps Auto Mode at the newest one."""
        return self.auto_mode or (bool(self.version) and self.release >= since)

    @property
    def keeps_nodes_up(self) -> bool:
        """It can keep nodes up that no pod is on (KP-8). Else a pool's `warm` has no effect on its nodes."""
        return self.static_capacity and self.supports(KARPENTER_STATIC_CAPACITY) and not self.auto_mode

    @property
    def release(self) -> KarpenterVersion:
        major, minor = self.version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)


# --- notifications ----------------------------------------------------------------------

# How long an engine with nothing to do sleeps before its next tick and heartbeat.
LONGEST_SLEEP = timedelta(minutes=10)
Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]


class SecretRef(Model):
    """Where a secret is: in an environment variable or in a file. It is read again for every delivery."""

    env: str = ""
    """Name of an environment variable of the engine."""
    file: str = ""
    """Path of a file, such as one mounted from a Kubernetes Secret. Leading and trailing white space is removed."""

    @model_validator(mode="after")
    def _one_place(self) -> SecretRef:
        if bool(self.env) == bool(self.file):
            raise ValueError("give either 'env' or 'file'")
        return self


class Notification(Model):
    """One target that alerts are sent to."""

    name: Name
    """Unique among the notifications."""
    type: Literal["webhook", "slack", "pagerduty", "sns"]
    """What kind of target it is."""
    url: Url | None = None
    """Webhook: the address to post to. PagerDuty: only if its address is not the usual one."""
    url_from: SecretRef | None = None
    """The address as a secret. Required for Slack: the address of an incoming webhook is a secret."""
    secret_from: SecretRef | None = None
    """Webhook: the key that signs each body with HMAC-SHA256."""
    routing_key_from: SecretRef | None = None
    """PagerDuty: the integration key of an Events API v2 service."""
    topic_arn: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:.+$")] | None = None
    """SNS: the topic. Messages are published in its region."""
    format: Literal["text", "webhook", "slack", "pagerduty"] = "text"
    """SNS: the format of the message. Text is for mail and phones; the others are the bodies that the other types
    post."""
    min_severity: Severity = Severity.INFO
    """Alerts below this severity are not sent to this target."""
    only: tuple[AlertKind, ...] = ()
    """Only these kinds of alerts. Empty: all."""

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Notification:
        if self.url is not None and self.url_from is not None:
            raise ValueError("give either 'url' or 'urlFrom', not both")
        if self.type == "webhook" and self.url is None and self.url_from is None:
            raise ValueError("a webhook needs 'url' or 'urlFrom'")
        if self.type == "slack" and (self.url is not None or self.url_from is None):
            raise ValueError("the address of a Slack webhook is a secret: give 'urlFrom', not 'url'")
        if self.type == "pagerduty" and self.routing_key_from is None:
            raise ValueError("PagerDuty needs 'routingKeyFrom'")
        if (self.type == "sns") != (self.topic_arn is not None):
            raise ValueError("'topicArn' is required for type sns, and only allowed there")
        if self.type != "sns" and self.format != "text":
            raise ValueError("'format' is only allowed for type sns; the other types have one format each")
        if self.secret_from is not None and self.type != "webhook":
            raise ValueError("'secretFrom' is only allowed for type webhook")
        return self

    def wants(self, kind: AlertKind, severity: Severity) -> bool:
        return severity.rank >= self.min_severity.rank and (not self.only or kind in self.only)


class AlertRules(Model):
    """When alerts that depend on time are raised, and how long deliveries are tried."""

    extension_lead: Length = timedelta(hours=24)
    """An alert is raised this long before the last moment to extend a block, which is an hour before the block's
    end."""
    silent_after: Length = timedelta(minutes=15)
    """`tidemill watchdog` raises an alert when there was no heartbeat of the engine for this long. At least 11m."""
    give_up_after: Length = timedelta(hours=24)
    """A delivery that has failed for this long is not tried again."""

    @model_validator(mode="after")
    def _is_longer_than_its_sleep(self) -> AlertRules:
        if self.silent_after < LONGEST_SLEEP + timedelta(minutes=1):
            raise ValueError(
                "'silentAfter' must be at least 11m: an engine with nothing to do sleeps for 10 minutes"
            )
        return self


# --- the document ----------------------------------------------------------------------


class PlatformSpec(Model):
    region: str
    """AWS region."""
    account_id: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    """AWS account id: 12 digits, in quotes."""
    deployment: Name
    """Value of the owner tag `deployment` on everything that Tidemill creates."""
    tags: dict[str, str] = {}
    """Extra tags on every block that is bought, such as a cost centre. Tidemill's own tags cannot be changed here."""
    cluster: ClusterRef
    """The EKS cluster that the nodes join."""
    node_role: str = ""
    """IAM role of the nodes, by name or ARN. Its instance profile has the same name, or is named here by its ARN."""
    subnets: dict[str, tuple[str, ...]] = {}
    """Subnet ids by availability zone."""
    security_groups: tuple[str, ...] = ()
    """Security groups of the nodes."""
    karpenter: KarpenterRef | None = None
    """The Karpenter that launches nodes for pools with `provisioner: karpenter`."""
    hostname: str = ""
    """Host name of the web pages and the API."""
    bucket: BucketName | None = None
    """S3 bucket of the engine's models and shared files."""
    database: Database = Database()
    """The engine's PostgreSQL on RDS."""
    redis: Redis = Redis()
    """The engine's Redis on ElastiCache."""
    engine_chart: EngineChart = EngineChart()
    """The inference or training engine that is installed by its Helm chart."""
    budget: Budget = Budget()
    """Spending limits."""
    approval: Approval = Approval()
    """Who must approve a purchase."""
    namespace_limits: tuple[NamespaceLimit, ...] = Field(default=(), max_length=100)
    """GPU caps per namespace: no more pods of these namespaces are admitted, and no nodes are launched for them. Of a
    namespace in several entries all hold. Pods that nobody holds are counted, but kube-scheduler starts them whatever
    is written here."""
    notifications: tuple[Notification, ...] = ()
    """Where alerts are sent. Without any, `tidemill alerts` lists them."""
    alerts: AlertRules = AlertRules()
    """When some alerts are raised."""

    @model_validator(mode="after")
    def _notification_names_are_unique(self) -> PlatformSpec:
        seen: set[str] = set()
        for notification in self.notifications:
            if notification.name in seen:
                raise ValueError(f"two notifications are called '{notification.name}'; rename one of them")
            seen.add(notification.name)
        return self


class Platform(Document):
    kind: Literal["Platform"] = "Platform"
    spec: PlatformSpec
