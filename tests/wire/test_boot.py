"""Instances that boot become nodes of an API server, with the labels and taints of their user data."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.wire.server_builder import SimulatedAws, on_block
from tidemill.sim.wire import WireServer
from tidemill.sim.wire.boot import KubeApi, read_user_data

ARCHIVE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      registerWithTaints:
        - {key: tidemill.dev/starting, effect: NoSchedule}
    flags: ["--node-labels=tidemill.dev/pool=train,team=vision"]

--//--
"""


class ApiServer:
    """As much of one as a booting node speaks to: it remembers nodes and their status."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.tokens: set[str] = set()
        self.refuses = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _take(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.tokens.add(self.headers.get("Authorization", ""))
                self.send_response(outer.take(self.command, self.path, body))
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PATCH = _take  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, method: str, path: str, body: dict[str, Any]) -> int:
        if self.refuses:
            return self.refuses
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.nodes:
                return 409
            self.nodes[name] = {**body, "status": {}}
            return 201
        self.nodes[path.split("/")[4]]["status"].update(body["status"])
        return 200

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    made = ApiServer()
    yield made
    made.close()


@pytest.fixture
def aws(api: ApiServer) -> Iterator[SimulatedAws]:
    made = SimulatedAws(kube=KubeApi(api.url, token="secret"))
    yield made
    made.stop()


def boot(aws: SimulatedAws, user_data: str) -> str:
    (one,) = aws.run(**on_block(aws.block().id), UserData=user_data)["Instances"]
    return str(one["InstanceId"])


def test_a_node_joins_minutes_after_launch_and_its_gpus_a_minute_later(aws: SimulatedAws, api: ApiServer):
    instance = boot(aws, ARCHIVE)
    aws.wait("2m")
    assert api.nodes == {}
    aws.wait("3m")
    (node,) = api.nodes.values()
    labels = node["metadata"]["labels"]
    assert (labels["tidemill.dev/pool"], labels["team"]) == ("train", "vision")
    assert labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert node["spec"]["providerID"].endswith(f"/{instance}")
    assert node["spec"]["taints"] == [{"key": "tidemill.dev/starting", "value": "", "effect": "NoSchedule"}]
    assert node["status"]["conditions"][0]["status"] == "True"
    aws.wait("90s")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["status"]["allocatable"]["cpu"].endswith("m")
    assert api.tokens == {"Bearer secret"}


def test_a_node_whose_instance_is_gone_is_not_ready(aws: SimulatedAws, api: ApiServer):
    instance = boot(aws, ARCHIVE)
    aws.wait("10m")
    aws.ec2.terminate_instances(InstanceIds=[instance])
    (node,) = api.nodes.values()
    assert node["status"]["conditions"][0]["status"] == "Unknown"


def test_errors_of_the_api_server_stop_nothing(
    aws: SimulatedAws, api: ApiServer, caplog: pytest.LogCaptureFixture
):
    api.refuses = 403
    with caplog.at_level(logging.WARNING):
        boot(aws, "")
        aws.wait("10m")
    assert "403" in caplog.text
    assert aws.instances()[0]["State"]["Name"] == "running"


@pytest.mark.parametrize(
    "text", ["", "#!/bin/bash\necho", "[settings", "[x]\ny=1", ARCHIVE.replace("kind", "kin")]
)
def test_unreadable_user_data_gives_no_labels_and_taints(text: str):
    assert (dict(read_user_data(text).labels), read_user_data(text).taints) == ({}, ())


def test_labels_and_taints_are_read_from_bottlerocket_user_data():
    text = """[settings.kubernetes.node-labels]
"tidemill.dev/pool" = "train"
[settings.kubernetes.node-taints]
"tidemill.dev/starting" = ["true:NoSchedule"]
"""
    told = read_user_data(text)
    assert told.labels == {"tidemill.dev/pool": "train"}
    assert told.taints == (("tidemill.dev/starting", "true", "NoSchedule"),)


def test_without_an_api_server_no_instance_becomes_a_node():
    aws = SimulatedAws()
    assert isinstance(aws.server, WireServer)
    aws.ids(block=aws.block().id)
    aws.wait("10m")
    aws.stop()
