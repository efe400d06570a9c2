"""`tidemill sim aws`: which account it serves, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from tidemill.cli import main

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@contextmanager
def serving(*words: str, by: signal.Signals = signal.SIGTERM) -> Iterator[dict[str, Any]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TIDEMILL_"))}
    command = [str(BIN / "tidemill"), "sim", "aws", "--port", "0", "--json", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline() or "{}")
        finally:
            process.send_signal(by)
            _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "ended at" in said


def client(told: dict[str, Any], service: str = "ec2") -> Any:
    return boto3.client(
        service,
        endpoint_url=told["endpoint"],
        region_name=told["region"],
        aws_access_key_id=told["environment"]["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=told["environment"]["AWS_SECRET_ACCESS_KEY"],
    )


def test_a_scenario_is_served_with_its_zones_subnets_blocks_and_start():
    scenario = ROOT / "examples" / "handover.yaml"
    with serving("-f", str(scenario), "--speed", "0", by=signal.SIGINT) as told:
        ec2 = client(told)
        listed = ec2.describe_capacity_reservations()["CapacityReservations"]
        subnets = [id_ for ids in told["subnets"].values() for id_ in ids]
        there = {one["SubnetId"] for one in ec2.describe_subnets(SubnetIds=subnets)["Subnets"]}
        eks = client(told, "eks")
        clusters = eks.list_clusters()["clusters"]
        ec2.close()
        eks.close()
    assert listed
    assert [f"name: {one}" in scenario.read_text() for one in clusters] == [True]
    assert there == set(subnets)
    assert told["now"] in scenario.read_text().replace('"', "")


def test_the_role_of_the_nodes_is_there_when_documents_are_served():
    """A stack or a group of theirs names it."""
    with serving("-f", str(ROOT / "examples" / "groups.yaml"), "--speed", "0") as told:
        iam = client(told, "iam")
        assert iam.get_role(RoleName="ml-node")["Role"]["Arn"].endswith(":role/ml-node")
        iam.close()


@pytest.mark.requirement("CB-17")
def test_sim_aws_starts_from_an_account_file_and_does_not_change_it(tmp_path: Path):
    file = tmp_path / "account.json"
    documents = str(ROOT / "examples" / "first-block.yaml")
    assert main(["sim", "new", str(file), "-f", documents, "--at", "2026-11-16T08:00:00Z"]) == 0
    bought = ["p5.48xlarge", "--zone", "us-east-1a", "--sim", str(file)]
    assert main(["sim", "buy-elsewhere", *bought]) == 0
    before = file.read_bytes()
    with serving("-f", str(file), "--speed", "0") as told:
        ec2, sts = client(told), client(told, "sts")
        (one,) = ec2.describe_capacity_reservations()["CapacityReservations"]
        ec2.create_tags(
            Resources=[one["CapacityReservationId"]], Tags=[{"Key": "deployment", "Value": "demo"}]
        )
        assert sts.get_caller_identity()["Arn"] == "arn:aws:iam::123456789012:user/you"
        ec2.close()
        sts.close()
    assert one["State"] == "active"
    assert told["now"] == "2026-11-16T08:00:00Z"
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--start", "soon"], "--start"),
        (["--speed", "-1"], "speed is 0 to"),
        (["-f", "a.json", "--market", "scarce"], "leave --start, --market"),
        (["-f", "nowhere.json"], "there is no simulated account"),
        (["-f", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_served_exits_2_with_a_message(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["sim", "aws", "--port", "0", *words]) == 2
    assert said in capsys.readouterr().err
