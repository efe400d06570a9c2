"""The node's own agent as it runs: the real script under /bin/sh, with a clock and commands of the test's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from tests.provision.documents import booted, documents, template
from tidemill.provision.user_data import Bootstrap, Family
from tidemill.provision.user_data.deadline_agent import environment, script
from tidemill.spec.units import format_instant

needs_jq = pytest.mark.skipif(
    shutil.which("jq") is None and os.environ.get("TIDEMILL_REQUIRE_ALL") != "1",
    reason="the agent uses jq, as EKS's images have it: apt-get install jq",
)
END = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


class Node:
    """A node's file system and commands: what the API server says, what the clock says, what was switched off."""

    def __init__(self, root):
        self.root = root
        for folder in ("etc/tidemill", "etc/eks/kubelet", "var/lib/kubelet", "etc/kubernetes/pki", "bin"):
            (root / folder).mkdir(parents=True)
        spec = documents()
        boot = Bootstrap(
            Family.AL2023, spec.platform.spec.cluster, "us-east-1", spec.node_classes["gpu"].spec, {}, ()
        )
        (root / "etc/tidemill/agent.env").write_text(environment(boot))
        (root / "etc/tidemill/ends-at").write_text(format_instant(END) + "\n")
        (root / "etc/eks/kubelet/environment").write_text(
            "NODEADM_KUBELET_ARGS='--node-ip=10.0.0.7 --hostname-override=ip-10-0-0-7.ec2.internal --v=2'\n"
        )
        (root / "var/lib/kubelet/kubeconfig").write_text("clusters:\n- cluster:\n    server: https://api\n")
        (root / "tidemill-deadline").write_text(script())
        self.command(
            "date", 'for word; do [ "$word" != -d ] || exec /bin/date "$@"; done; cat "$TIDEMILL_ROOT/now"'
        )
        self.command("aws", """echo '{"status": {"token": "t"}}'""")
        self.command("systemctl", 'echo "$@" >> "$TIDEMILL_ROOT/switched"')
        self.api_server(pods=[])

    def command(self, name, text):
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def api_server(self, pods, ends_at=None):
        annotations = {"tidemill.dev/ends-at": format_instant(ends_at)} if ends_at else {}
        (self.root / "node.json").write_text(json.dumps({"metadata": {"annotations": annotations}}))
        (self.root / "pods.json").write_text(json.dumps({"items": pods}))
        self.command(
            "curl",
            'for word; do url=$word; done; echo "$url" >> "$TIDEMILL_ROOT/asked"\n'
            'case $url in https://api/api/v1/nodes/ip-10-0-0-7.ec2.internal) cat "$TIDEMILL_ROOT/node.json";;\n'
            "https://api/api/v1/pods?fieldSelector=spec.nodeName=ip-10-0-0-7.ec2.internal)"
            ' cat "$TIDEMILL_ROOT/pods.json";;\n'
            "*) exit 22;; esac",
        )

    def api_server_is_away(self):
        self.command("curl", "exit 7")

    def look(self, at):
        (self.root / "now").write_text(f"{int(at.timestamp())}\n")
        path = f"{self.root}/bin:/usr/bin:/bin"
        ran = subprocess.run(
            ["/bin/sh", str(self.root / "tidemill-deadline")],
            env={"PATH": path, "TIDEMILL_ROOT": str(self.root)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        return self.switched_off

    @property
    def switched_off(self):
        path = self.root / "switched"
        return path.exists() and path.read_text() == "poweroff\n"


def pod(grace_s, *, phase="Running", owner="Job", deleted=False):
    stopped = {"deletionTimestamp": "2026-11-20T10:50:00Z"} if deleted else {}
    return {
        "metadata": {"ownerReferences": [{"kind": owner}], **stopped},
        "spec": {"terminationGracePeriodSeconds": grace_s},
        "status": {"phase": phase},
    }


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def before(seconds):
    return END - timedelta(seconds=seconds)


@needs_jq
@pytest.mark.requirement("CB-16")
@pytest.mark.parametrize("grace_s", [30, 600, 1800])
def test_the_node_powers_off_when_the_longest_grace_just_fits(node, grace_s):
    node.api_server([pod(5), pod(grace_s)])
    assert not node.look(before(grace_s + 30 + 60))
    assert not node.look(before(grace_s + 30 + 1))
    assert node.look(before(grace_s + 30))


@needs_jq
@pytest.mark.requirement("CB-16")
def test_a_later_end_from_the_api_server_is_used_and_remembered(node):
    later = END + timedelta(days=1)
    node.api_server([pod(30)], ends_at=later)
    assert not node.look(before(3600))
    node.api_server_is_away()
    assert not node.look(END)
    assert not node.look(later - timedelta(seconds=61))
    assert node.look(later - timedelta(seconds=60))


@needs_jq
@pytest.mark.requirement("CB-16")
def test_an_earlier_end_from_the_api_server_is_used_too(node):
    node.api_server([pod(30)], ends_at=before(7200))
    assert node.look(before(7260))


@needs_jq
@pytest.mark.requirement("CB-16")
def test_without_the_api_server_the_end_of_the_launch_counts(node):
    node.api_server_is_away()
    assert not node.look(before(631))
    assert node.look(before(630))


@needs_jq
def test_daemons_and_finished_pods_need_no_time(node):
    node.api_server([pod(1800, owner="DaemonSet"), pod(1800, phase="Succeeded"), pod(20)])
    assert not node.look(before(51))
    assert node.look(before(50))


@needs_jq
@pytest.mark.requirement("CB-16")
def test_pods_that_the_agent_in_the_cluster_stopped_already_have_their_grace(node):
    """It acts 15 s earlier. What this script read before that must not power the node off under the other pods."""
    node.api_server([pod(600), pod(30)])
    assert not node.look(before(600 + 30 + 20))
    node.api_server([pod(600, deleted=True), pod(30)])
    assert not node.look(before(600 + 30 + 5))
    assert not node.look(before(600 + 25))
    assert not node.look(before(61))
    assert node.look(before(60))


@needs_jq
def test_a_pod_without_a_grace_period_has_the_default_of_kubernetes(node):
    node.api_server([{"metadata": {}, "spec": {}, "status": {"phase": "Running"}}])
    assert not node.look(before(61))
    assert node.look(before(60))


@needs_jq
def test_no_pod_gets_more_grace_than_the_kubelet_gives(node):
    node.api_server([pod(10 * 3600)])
    assert not node.look(before(3631))
    assert node.look(before(3630))


@needs_jq
def test_it_asks_the_api_server_every_twenty_seconds_and_switches_off_once(node):
    for seconds in range(300, -60, -10):
        node.look(before(seconds))
    assert node.switched_off
    asked = (node.root / "asked").read_text().split()
    assert len(asked) == 2 * (18 + 1)  # once more before it acts


@needs_jq
@pytest.mark.parametrize(
    "answer", ["not json", "{}", '{"metadata": {"annotations": {"tidemill.dev/ends-at": "soon"}}}']
)
def test_an_invalid_answer_changes_nothing(node, answer):
    node.api_server([pod(30)])
    node.look(before(7200))
    (node.root / "node.json").write_text(answer)
    (node.root / "pods.json").write_text(answer)
    node.command("jq", 'exec /usr/bin/jq "$@" 2>/dev/null')
    assert not node.look(before(3600))
    assert (node.root / "etc/tidemill/ends-at").read_text().strip() == format_instant(END)


@pytest.mark.requirement("CB-16")
def test_a_node_whose_end_is_known_installs_the_agent_and_the_kubelets_graceful_shutdown():
    text = booted(template(documents(), ends_at=END))
    assert "echo 2026-11-20T11:00:00Z > /etc/tidemill/ends-at" in text
    assert script().rstrip("\n") in text
    assert "systemctl enable --now tidemill-deadline.timer" in text
    assert "shutdownGracePeriod: 3660s" in text
    assert len(text) < 16 * 1024
    assert "tidemill-deadline" not in booted(template(documents()))


def test_the_install_script_is_valid_shell(tmp_path):
    text = booted(template(documents(node_class={"kernel": {"vm.nr_hugepages": "5128"}}), ends_at=END))
    body = text[
        text.index("#!/bin/bash") : text.index("\n\n--//TIDEMILL//\nContent-Type: application/node.eks.aws")
    ]
    (tmp_path / "part.sh").write_text(body)
    subprocess.run(["/bin/sh", "-n", str(tmp_path / "part.sh")], check=True)
    assert "vm.nr_hugepages = 5128" in body
