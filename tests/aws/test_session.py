"""Clients: when they are made, how often they try, as whom they call."""

from __future__ import annotations

import subprocess
import sys
import threading

import botocore.utils
import pytest

from tests.aws.wired import REGION, Wired
from tidemill.aws.errors import CallKind
from tidemill.aws.session import ATTEMPTS, CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Aws, parse_timestamp
from tidemill.model.errors import NotAllowed, Retryable, Throttled


def test_a_client_states_its_time_outs_and_tries_and_says_who_it_is(wired: Wired):
    wired.aws.read("sts", "GetCallerIdentity")
    config = wired.aws._client("sts").meta.config
    assert (config.connect_timeout, config.read_timeout) == (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    assert config.retries == {"mode": "standard", "total_max_attempts": ATTEMPTS}
    assert "tidemill/" in config.user_agent_extra
    assert wired.aws._client_that_tries_once("ec2").meta.config.retries["total_max_attempts"] == 1


def test_nobody_can_talk_a_purchase_into_more_tries(wired: Wired, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    config = Aws(REGION)._client_that_tries_once("ec2").meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}


def test_a_client_is_made_once_and_shared_by_threads(wired: Wired):
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(wired.aws._client("ec2"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for one in threads:
        one.join()
    assert len({id(one) for one in found}) == 1
    assert wired.aws._client_that_tries_once("ec2") is not found[0]


def test_boto3_is_imported_when_the_first_call_is_made_and_not_before():
    code = (
        "import sys, tidemill.aws.account, tidemill.aws.compute, tidemill.aws.images, tidemill.cli.session; "
        "sys.exit(any(name.split('.')[0] in ('boto3', 'botocore') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_boto3_and_botocore_the_first_call_says_what_to_install():
    code = (
        "import sys; sys.modules.update(boto3=None, botocore=None); from tidemill.cli import main; "
        "sys.exit(main(['inspect', '--region', 'us-east-1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: a real AWS account needs boto3: pip install 'tidemill[aws]'\n"


def test_a_role_can_be_assumed_on_top(wired: Wired):
    role = "arn:aws:iam::123456789012:role/mill-engine"
    assumed = Aws(REGION, role_arn=role)
    assert assumed.read("sts", "GetCallerIdentity")["Arn"]
    signed_with = assumed._session.get_credentials()
    assert signed_with.method == "assume-role"
    assert signed_with.access_key != "simulated"


def test_a_role_that_cannot_be_assumed_is_not_allowed(wired: Wired):
    wired.fault("error", action="AssumeRole", code="AccessDenied", status=403, times=9, message="no")
    with pytest.raises(NotAllowed, match="does not allow"):
        Aws(REGION, role_arn="arn:aws:iam::123456789012:role/mill-engine").read("ec2", "DescribeInstances")


# --- a guard that is asked before a call --------------------------------------------------------------


@pytest.mark.requirement("CB-4")
def test_no_change_is_begun_with_less_lease_left_than_its_time_out_and_reads_go_on(wired: Wired):
    asked: list[float] = []

    def may_begin(timeout_s: float) -> None:
        asked.append(timeout_s)
        raise Retryable("no lease left")

    guarded = Aws(REGION, longest_s=15, may_begin=may_begin)
    guarded.read("ec2", "DescribeInstances")
    guarded.call("ec2", "DescribeCapacityBlockExtensionHistory", CallKind.QUESTION)
    assert asked == []
    for kind in (CallKind.CHANGE, CallKind.ONCE, CallKind.LAUNCH, CallKind.PURCHASE):
        with pytest.raises(Retryable, match="no lease left"):
            guarded.call(
                "ec2", "CreateTags", kind, Resources=["i-00000000"], Tags=[{"Key": "a", "Value": "b"}]
            )
    assert asked == [15] * 4
    assert "ec2:CreateTags" not in guarded.called


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("kind", [CallKind.CHANGE, CallKind.ONCE, CallKind.LAUNCH, CallKind.PURCHASE])
def test_a_change_is_asked_for_again_when_it_is_signed(wired: Wired, kind: CallKind):
    """Finding credentials took as long as the lease lasted, or the process was frozen meanwhile."""
    asked: list[float] = []

    def may_begin(timeout_s: float) -> None:
        asked.append(timeout_s)
        if len(asked) > 1:
            raise Throttled("no lease left")

    guarded = Aws(REGION, longest_s=15, may_begin=may_begin)
    with pytest.raises(Throttled, match="no lease left"):
        guarded.call("ec2", "CreateTags", kind, Resources=["i-00000000"], Tags=[{"Key": "a", "Value": "b"}])
    assert asked == [15, 15]
    assert "CreateTags" not in [call.action for call in wired.server.wire.calls]


def test_a_guarded_change_is_not_repeated_by_the_sdk(wired: Wired):
    """Three tries would take three times as long as the lease was asked for."""
    guarded = Aws(REGION, longest_s=15, may_begin=lambda timeout_s: None)
    wired.fault("error", action="CreateTags", code="InternalError", status=500, times=1, message="no")
    with pytest.raises(Retryable):
        guarded.call(
            "ec2", "CreateTags", CallKind.CHANGE, Resources=["i-00000000"], Tags=[{"Key": "a", "Value": "b"}]
        )
    config = guarded._client("ec2", 1).meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 10)
    assert config.retries["total_max_attempts"] == 1


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-18T08:00:00.000Z", "2026-11-18T08:00:00Z", "2026-11-18T08:00:00+01:00", "20261118T080000Z",
        "Wed, 18 Nov 2026 08:00:00 GMT", "1795507200", 1795507200, 1795507200.5,
    ],
)  # fmt: skip
def test_a_timestamp_is_read_as_botocore_reads_it(written: str | float):
    assert parse_timestamp(written) == botocore.utils.parse_timestamp(written)


def test_ec2_s_timestamps_are_read_without_dateutil(wired: Wired, monkeypatch: pytest.MonkeyPatch):
    """It took a third of the time of a list of instances."""
    monkeypatch.setattr("botocore.utils.dateutil.parser.parse", None)
    block = wired.account.block()
    (listed,) = wired.aws.read("ec2", "DescribeCapacityReservations")["CapacityReservations"]
    assert (listed["CapacityReservationId"], listed["StartDate"]) == (block.id, block.start)
