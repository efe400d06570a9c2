"""`tidemill secrets` against the simulated AWS: made once, checked, replaced on purpose, and never shown."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from tests.aws.wired import Wired
from tidemill.aws.iam import calls
from tidemill.aws.secrets import SecretsManager
from tidemill.cli import main

PLANTED = "planted-Zq7"  # in every secret of these tests; it must not be seen anywhere
TOKEN = f"{PLANTED}-token/with+signs"
OIDC = json.dumps(
    [
        {
            "key": "okta",
            "name": "Okta",
            "issuer_url": "https://corp.example",
            "client_id": "a",
            "client_secret": f"{PLANTED}-client",
        }
    ]
)

PLATFORM = """
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: mill}
spec:
  region: us-east-1
  deployment: mill
  cluster: {name: mill}
  bucket: mill-models
"""


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def states(self) -> dict[str, str]:
        return {
            one["secret"]: one.get("state", one.get("outcome")) for one in json.loads(self.out)["secrets"]
        }


class Person:
    def __init__(self, wired: Wired, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.wired, self._capsys = wired, capsys
        self.file = folder / "platform.yaml"
        self.file.write_text(PLATFORM)

    def __call__(self, *given: str) -> Told:
        code = main(["secrets", given[0], *given[1:], "-f", str(self.file), "--aws"])
        out, err = self._capsys.readouterr()
        assert PLANTED not in out + err
        return Told(code, out, err)

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name="us-east-1")

    def value(self, name: str) -> str:
        return str(self.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])

    def create_servers(self) -> str:
        """The database with its login as RDS keeps it, and Redis. Returns the name of the login."""
        made = self.client("rds").create_db_instance(
            DBInstanceIdentifier="mill", Engine="postgres", DBInstanceClass="db.m8g.2xlarge", AllocatedStorage=100,
            MasterUsername="engine", ManageMasterUserPassword=True,
        )["DBInstance"]  # fmt: skip
        login = made["MasterUserSecret"]["SecretArn"].rpartition(":secret:")[2][:-7]
        self.client("secretsmanager").put_secret_value(
            SecretId=login, SecretString=json.dumps({"username": "engine", "password": PLANTED})
        )
        self.client("elasticache").create_replication_group(
            ReplicationGroupId="mill",
            ReplicationGroupDescription="redis",
            TransitEncryptionEnabled=True,
            AuthToken=TOKEN,
        )
        return str(login)


@pytest.fixture
def person(wired: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(wired, tmp_path, capsys)


@pytest.fixture
def given_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    monkeypatch.setenv("REDIS_TOKEN", TOKEN)
    (tmp_path / "oidc.json").write_text(OIDC)
    return "--redis", "env:REDIS_TOKEN", "--oidc", f"file:{tmp_path / 'oidc.json'}"


@pytest.mark.requirement("AE-3")
def test_from_nothing_to_all_fine_and_the_second_time_changes_nothing(
    person: Person, given_values: tuple[str, ...]
):
    login = person.create_servers()
    assert person("check", "--json").code == 1
    first = person("init", *given_values, "--json")
    assert first.code == 0
    assert first.states == {
        "login": "was-there", "database": "made", "storage": "made", "redis": "made", "oidc": "made", "cookies": "made",
    }  # fmt: skip
    checked = person("check", "--json")
    assert checked.code == 0
    assert set(checked.states.values()) == {"fine"}
    assert json.loads(checked.out)["secrets"][0]["name"] == login

    before = person.value("mill/cookies-secret")
    assert set(person("init", *given_values, "--json").states.values()) == {"was-there"}
    assert person.value("mill/cookies-secret") == before


@pytest.mark.requirement("AE-3")
def test_what_is_made_has_the_layout_that_engines_read(person: Person, given_values: tuple[str, ...]):
    person.create_servers()
    person("init", *given_values)
    assert len(person.value("mill/cookies-secret")) >= 64
    assert json.loads(person.value("mill/s3/storage")) == {
        "model_registry": "s3://mill-models/model_registry",
        "workdir": "s3://mill-models/shared",
    }
    connection = json.loads(person.value("mill/rds/connection"))
    assert connection["database_name"] == "engine"
    assert connection["endpoint"].endswith(":5432")
    url = json.loads(person.value("mill/redis/auth-token"))["url"]
    assert url.startswith("rediss://:")
    assert "/with" not in url  # a slash in a token would end the host
    assert json.loads(person.value("mill/oidc_secret"))[0]["key"] == "okta"
    tags = person.client("secretsmanager").describe_secret(SecretId="mill/oidc_secret")["Tags"]
    assert tags == [{"Key": "deployment", "Value": "mill"}]


@pytest.mark.requirement("AE-3")
def test_what_only_a_person_knows_is_asked_for_with_the_command(person: Person):
    told = person("init")
    assert told.code == 1
    assert "tidemill secrets init --oidc env:NAME|file:PATH|-" in " ".join(told.out.split())
    assert person("check", "--json").states["cookies"] == "fine"


def test_a_dry_run_makes_nothing(person: Person, given_values: tuple[str, ...]):
    assert "would be created" in person("init", *given_values, "--dry-run").out
    assert person.client("secretsmanager").list_secrets()["SecretList"] == []


@pytest.mark.requirement("AE-3")
@pytest.mark.parametrize(
    ("code", "status"), [("ThrottlingException", 400), ("AccessDeniedException", 400), ("InternalError", 500)]
)
def test_a_failure_to_look_is_cannot_tell_and_changes_nothing(
    person: Person, given_values: tuple[str, ...], code: str, status: int
):
    person.create_servers()
    fault = {"code": code, "message": "no", "status": status, "count": 100}
    person.wired.fault("error", action="DescribeSecret", **fault)
    checked = person("check", "--json")
    assert checked.code == 3
    assert set(checked.states.values()) == {"cannot-tell"}
    assert person("init", *given_values, "--json").states["cookies"] == "cannot-tell"
    person.wired.fault("clear")
    assert [one["Name"] for one in person.client("secretsmanager").list_secrets()["SecretList"]] != []
    assert person("check", "--json").states["cookies"] == "missing"


@pytest.mark.requirement("AE-15")
def test_a_secret_is_replaced_after_its_value_was_checked(person: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("URL", f"redis://:{PLANTED}@cache.example:6379")
    told = person("set", "redis", "--from", "env:URL")
    assert told.code == 2
    assert "it must be rediss://" in told.err
    assert person("check", "--json").states["redis"] == "missing"

    monkeypatch.setenv("URL", f"rediss://:{PLANTED}@cache.example:6379")
    assert "created" in person("set", "redis", "--from", "env:URL").out
    assert "unchanged" in person("set", "redis", "--from", "env:URL").out
    monkeypatch.setenv("URL", f"rediss://:{PLANTED}-2@cache.example:6379")
    assert "replaced" in person("set", "redis", "--from", "env:URL").out
    assert person.value("mill/redis/auth-token").count("-2@") == 1
    versions = person.client("secretsmanager").describe_secret(SecretId="mill/redis/auth-token")[
        "VersionIdsToStages"
    ]
    assert ["AWSPREVIOUS"] in versions.values()


@pytest.mark.requirement("AE-15")
def test_a_new_cookies_secret_is_random_and_asked_about(person: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    person("init")
    before = person.value("mill/cookies-secret")
    assert person("set", "cookies").code == 130
    assert person.value("mill/cookies-secret") == before
    assert person("set", "cookies", "--yes").code == 0
    assert person.value("mill/cookies-secret") != before


@pytest.mark.requirement("AE-3")
def test_a_value_on_the_command_line_is_refused_and_not_repeated(person: Person):
    told = person("set", "oidc", "--from", PLANTED)
    assert told.code == 2
    assert "never from the command line" in told.err
    assert person("set", "oidc", "--from", "env:NOT_THERE").code == 2
    assert person("set", "oidc", "--from", "file:/not/there").code == 2


@pytest.mark.requirement("AE-3")
def test_a_wrong_secret_that_is_there_is_shown_and_left(person: Person):
    person.client("secretsmanager").create_secret(Name="mill/oidc_secret", SecretString=f'{{"{PLANTED}": 1}}')
    told = person("check", "--json")
    assert told.states["oidc"] == "wrong"
    assert "JSON array" in told.out
    assert person("init", "--json").states["oidc"] == "wrong"


def test_a_secret_that_is_being_deleted_says_how_to_bring_it_back(person: Person):
    manager = person.client("secretsmanager")
    manager.create_secret(Name="mill/oidc_secret", SecretString=OIDC)
    manager.delete_secret(SecretId="mill/oidc_secret")
    told = person("check")
    assert "restore-secret --secret-id mill/oidc_secret" in " ".join(told.out.split())
    assert person("init", "--json").states["oidc"] == "not-yet"


def test_every_call_is_in_the_table_of_permissions(person: Person, wired: Wired):
    person.create_servers()
    store = SecretsManager(wired.aws, "mill")
    (
        store.server("mill"),
        store.redis_host("mill"),
        store.read("x"),
        store.redis_host("none"),
        store.server("none"),
    )
    assert wired.aws.called <= calls()


@pytest.mark.requirement("AE-4")
def test_the_operator_reads_the_secrets_of_its_deployment_and_no_others(
    person: Person, capsys: pytest.CaptureFixture[str]
):
    assert main(["iam", "external-secrets", "-f", str(person.file)]) == 0
    (statement,) = json.loads(capsys.readouterr().out)["Statement"]
    assert all(action.startswith("secretsmanager:") for action in statement["Action"])
    assert "PutSecretValue" not in json.dumps(statement)
    assert [arn.rpartition(":secret:")[2] for arn in statement["Resource"]] == ["mill/*", "rds!db-*"]
