"""The chart as helm renders it: nothing of it drifts from the code, and what it starts is safe by default."""

from __future__ import annotations

import base64
import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

import tidemill
from deploy import generate
from tests.deploy.helm import CHART, IMAGE, NAMESPACE, ROOT, VALUES, helm, named, pod_specs, rendered
from tidemill.cli import VERBS
from tidemill.kube.admission.policy import policy_objects
from tidemill.kube.rbac import Role, manifests
from tidemill.render.node_agent import node_agent_objects
from tidemill.spec.crds import definitions


@pytest.fixture(params=VALUES, ids=lambda file: file.stem)
def values(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


def same(wanted: dict[str, Any], objects: list[dict[str, Any]]) -> bool:
    """It is there as the code says; the chart adds labels and annotations."""
    found = named(objects, wanted["kind"], wanted["metadata"]["name"])
    plain = {**found, "metadata": {key: found["metadata"].get(key) for key in wanted["metadata"]}}
    plain["metadata"]["labels"] = wanted["metadata"].get("labels")
    if "labels" not in wanted["metadata"]:
        del plain["metadata"]["labels"]
    return plain == wanted


# --- one source of truth ------------------------------------------------------------------------------


def test_the_generated_files_are_what_the_code_says() -> None:
    on_disk = {file.name: file.read_text() for file in generate.FOLDER.iterdir()}
    assert on_disk == generate.files(), "run: python -m deploy.generate"


def test_nothing_that_is_generated_reads_as_a_template_by_chance() -> None:
    ours = {generate.NAMESPACE, generate.IMAGE, generate.CA}
    for name, text in generate.files().items():
        assert set(re.findall(r"\{\{.*?\}\}", text)) <= ours, name


def test_what_is_installed_is_what_the_verbs_print() -> None:
    objects = rendered("--set", IMAGE, "--set", "controller.karpenter=true")
    image = "registry.example.com/tidemill:" + tidemill.__version__
    agent = [each for each in node_agent_objects(image, namespace=NAMESPACE) if each["kind"] != "Namespace"]
    roles = [Role.CONTROLLER, Role.DOCUMENTS, Role.KARPENTER, Role.RELEASE]
    wanted = [
        *agent, *definitions(), *policy_objects((NAMESPACE,)),
        *(each for role in roles for each in manifests(role, NAMESPACE)),
    ]  # fmt: skip
    for each in wanted:
        assert same(each, objects), f"{each['kind']} {each['metadata']['name']}"


def test_the_versions_of_chart_and_package_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == tidemill.__version__


def test_every_value_is_in_the_schema_and_every_key_of_the_schema_has_a_default() -> None:
    def compare(values: Any, schema: dict[str, Any], path: str) -> None:
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, path
        assert set(values) == set(schema["properties"]) - {"global"}, path
        for key, value in values.items():
            compare(value, schema["properties"][key], f"{path}.{key}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


# --- what helm says of it -----------------------------------------------------------------------------


def test_helm_finds_nothing_wrong(values: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "-f", str(values))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "set image.repository to the image that you built from deploy/Containerfile"),
        ((IMAGE, "controller.replicas=2"), "controller.replicas is 2, but a ledger on SQLite allows one"),
        ((IMAGE, "ledger.type=postgresql"), "set ledger.postgresql.host"),
        ((IMAGE, "ledger.type=postgresql,ledger.postgresql.host=db"), "a Secret with the password"),
        ((IMAGE, "documents.fromCluster=false"), "the documents come from one place"),
        ((IMAGE, "documents.existingConfigMap=mine"), "the documents come from one place"),
        (
            (IMAGE, "admission.mode=webhook,admission.webhook.existingSecret=tls"),
            "admission.webhook.existingSecret needs admission.webhook.caBundle",
        ),
        ((IMAGE, "controler.replicas=2"), "Additional property controler is not allowed"),
        ((IMAGE, "ceilings.approval=maybe"), "ceilings.approval must be one of the following"),
        ((IMAGE, "controller.roleArn=tidemill"), "controller.roleArn: Does not match pattern"),
    ],
)
def test_values_that_do_not_go_together_are_refused_in_a_sentence(
    given: tuple[str, ...], sentence: str
) -> None:
    options = [word for each in given for word in ("--set", each)]
    assert sentence in helm("template", "t", str(CHART), *options, fails=True)


# --- safe by default ----------------------------------------------------------------------------------


def test_no_process_has_more_of_its_node_than_it_needs(values: Path) -> None:
    for name, pod in pod_specs(rendered("-f", str(values))).items():
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name


def test_the_controller_has_its_probes_and_more_time_to_end_than_it_takes(values: Path) -> None:
    pod = pod_specs(rendered("-f", str(values)))["Deployment tidemill-controller"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    arguments = container["args"]
    grace_s = int(arguments[arguments.index("--grace") + 1].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] > grace_s


def test_with_sqlite_the_old_pod_ends_before_the_new_one_starts() -> None:
    objects = rendered("--set", IMAGE)
    deployment = named(objects, "Deployment", "tidemill-controller")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    claim = named(objects, "PersistentVolumeClaim", "tidemill-ledger")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [each for each in objects if each["kind"] == "PodDisruptionBudget"]


def test_no_replicas_are_no_replicas() -> None:
    deployment = named(
        rendered("--set", IMAGE, "--set", "controller.replicas=0"), "Deployment", "tidemill-controller"
    )
    assert deployment["spec"]["replicas"] == 0


def test_the_password_of_the_ledger_is_a_file_and_nowhere_else() -> None:
    file = next(each for each in VALUES if each.stem == "postgresql-values")
    objects = rendered("-f", str(file))
    pod = pod_specs(objects)["Deployment tidemill-controller"]
    (container,) = pod["containers"]
    address = container["args"][container["args"].index("--ledger") + 1]
    assert address.startswith("postgresql://tidemill@ledger.example.com:5432/tidemill?")
    assert "password_file=/etc/tidemill/ledger/password" in address
    (volume,) = [each for each in pod["volumes"] if each["name"] == "ledger-password"]
    assert volume["secret"]["items"] == [{"key": "pass", "path": "password"}]
    assert not [each for each in objects if each["kind"] == "Secret" and "ledger" in each["metadata"]["name"]]


def test_one_authority_signs_the_certificate_that_the_webhook_is_called_with() -> None:
    objects = rendered("--set", IMAGE, "--set", "admission.mode=webhook")
    secret = named(objects, "Secret", "tidemill-webhook")["data"]
    (configuration,) = [each for each in objects if each["kind"] == "MutatingWebhookConfiguration"]
    bundles = {each["clientConfig"]["caBundle"] for each in configuration["webhooks"]}
    assert bundles == {secret["ca.crt"]}


def test_the_certificate_is_for_the_service_and_signed_by_the_authority() -> None:
    data = named(rendered("--set", IMAGE, "--set", "admission.mode=webhook"), "Secret", "tidemill-webhook")[
        "data"
    ]
    authority, certificate = (
        x509.load_pem_x509_certificate(base64.b64decode(data[name])) for name in ("ca.crt", "tls.crt")
    )
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"tidemill-webhook.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)
    key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), None)
    encoding = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert key.public_key().public_bytes(*encoding) == certificate.public_key().public_bytes(*encoding)


def test_roles_are_annotated_for_irsa_and_pull_secrets_are_everywhere() -> None:
    file = next(each for each in VALUES if each.stem == "postgresql-values")
    objects = rendered("-f", str(file))
    accounts = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ServiceAccount"}
    annotations = accounts["tidemill-controller"]["metadata"]["annotations"]
    assert annotations["eks.amazonaws.com/role-arn"] == "arn:aws:iam::123456789012:role/tidemill-controller"
    assert all(each["imagePullSecrets"] == [{"name": "registry"}] for each in accounts.values())
    used = {pod["serviceAccountName"] for pod in pod_specs(objects).values()}
    assert used == set(accounts)


def test_monitoring_objects_come_only_when_asked_for() -> None:
    kinds = {each["kind"] for each in rendered("--set", IMAGE)}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}
    asked = rendered("--set", IMAGE, "--set", "metrics.serviceMonitor.enabled=true")
    monitor = named(asked, "ServiceMonitor", "tidemill")
    service = named(asked, "Service", "tidemill-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    labels = named(asked, "Deployment", "tidemill-controller")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


# --- the image ----------------------------------------------------------------------------------------


def test_the_image_has_the_extras_and_the_entry_point_of_the_package() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.*?)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {"aws", "kube", "postgres"} <= set(extras.split(","))
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]', text, re.MULTILINE)
    assert entry in project["scripts"]
    user = re.findall(r"^USER (\d+):\d+", text, re.MULTILINE)
    assert user == ["65532"], "the user that the chart's pods run as"


# --- the purchaser ------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-23")
def test_only_the_purchaser_has_the_role_that_buys() -> None:
    file = next(each for each in VALUES if each.stem == "postgresql-values")
    objects = rendered("-f", str(file))
    pods = pod_specs(objects)
    (controller,) = pods["Deployment tidemill-controller"]["containers"]
    (purchaser,) = pods["Deployment tidemill-purchaser"]["containers"]
    assert "--purchaser-apart" in controller["args"]
    assert purchaser["args"][0] == "purchaser"
    ledger = controller["args"][controller["args"].index("--ledger") + 1]
    assert ledger in purchaser["args"], "one ledger"
    ceilings = [each for each in controller["env"] if each["name"].startswith("TIDEMILL_")]
    assert len(ceilings) == 4
    assert all(each in purchaser["env"] for each in ceilings), "the same ceilings"
    accounts = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ServiceAccount"}
    roles = {
        name: (each["metadata"].get("annotations") or {}).get("eks.amazonaws.com/role-arn")
        for name, each in accounts.items()
    }
    assert roles["tidemill-purchaser"] != roles["tidemill-controller"]
    for each in manifests(Role.PURCHASER, NAMESPACE):
        if each["kind"] != "ServiceAccount":
            assert same(each, objects)


def test_with_sqlite_one_process_does_both() -> None:
    objects = rendered("--set", IMAGE)
    (controller,) = pod_specs(objects)["Deployment tidemill-controller"]["containers"]
    assert "--purchaser-apart" not in controller["args"]
    assert "Deployment tidemill-purchaser" not in pod_specs(objects)


def test_every_command_line_of_the_chart_is_one_that_tidemill_reads(
    values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are parsed and nothing is run."""
    for name, pod in pod_specs(rendered("-f", str(values))).items():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            words = [*container["command"], *container.get("args", ())]
            assert words.pop(0) == "tidemill", name
            for given in container.get("env", ()):
                monkeypatch.setenv(given["name"], given.get("value", "from-the-pod"))
            verb = VERBS[words[0]]
            command = getattr(importlib.import_module(f"tidemill.cli.{verb.module}"), verb.attribute)
            rest = words[1:]
            if isinstance(command, click.Group):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context(words[0], rest)
