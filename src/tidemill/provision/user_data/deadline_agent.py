"""The deadline agent, installed on a node at first boot: it empties the node in time if the engine is away (CB-16).

A shell script and a systemd timer. It needs what EKS's AL2023 images have (systemd, jq, curl, the AWS CLI) and the
kubelet's graceful shutdown, which the NodeConfig sets. Where the end of the node is not known nothing is installed.
"""

from __future__ import annotations

import shlex
from functools import cache
from importlib import resources

from tidemill.provision.user_data.bootstrap import CRITICAL_GRACE, SHUTDOWN_GRACE, Bootstrap
from tidemill.spec import names
from tidemill.spec.units import format_instant

# Half of the minute between the engine's forced delete and the deadline: a running engine acts first.
SPARE_S = 30
EVERY_S = 10
ASK_EVERY_S = 20  # of the API server, by every node: three requests a minute each way

_SERVICE = """\
[Unit]
Description=Empties this node before its capacity ends
After=kubelet.service
[Service]
Type=oneshot
ExecStart=/usr/local/bin/tidemill-deadline
"""
_TIMER = f"""\
[Unit]
Description=Looks whether this node must end
[Timer]
OnActiveSec={EVERY_S}s
OnUnitInactiveSec={EVERY_S}s
AccuracySec=1s
[Install]
WantedBy=timers.target
"""


def install(boot: Bootstrap) -> list[str]:
    """Lines of a shell script; none where the end of the node is not known."""
    if boot.ends_at is None:
        return []
    return [
        "mkdir -p /etc/tidemill",
        f"echo {shlex.quote(format_instant(boot.ends_at))} > /etc/tidemill/ends-at",
        *_file("/etc/tidemill/agent.env", environment(boot)),
        *_file("/usr/local/bin/tidemill-deadline", script()),
        "chmod 755 /usr/local/bin/tidemill-deadline",
        *_file("/etc/systemd/system/tidemill-deadline.service", _SERVICE),
        *_file("/etc/systemd/system/tidemill-deadline.timer", _TIMER),
        "systemctl daemon-reload",
        "systemctl enable --now tidemill-deadline.timer",
    ]


def environment(boot: Bootstrap) -> str:
    """The script's settings; the rest it finds on the node."""
    settings = {
        "CLUSTER": shlex.quote(boot.cluster.name),
        "REGION": shlex.quote(boot.region),
        "ANNOTATION": shlex.quote(names.ENDS_AT),
        "SPARE_S": SPARE_S,
        # The longest grace the kubelet gives a pod.
        "MOST_S": int((SHUTDOWN_GRACE - CRITICAL_GRACE).total_seconds()),
        "ASK_EVERY_S": ASK_EVERY_S,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@cache
def script() -> str:
    return resources.files(__package__).joinpath("tidemill-deadline.sh").read_text(encoding="utf-8")


def _file(path: str, text: str) -> list[str]:
    return [f"cat > {path} <<'TIDEMILL'", *text.rstrip("\n").split("\n"), "TIDEMILL"]
