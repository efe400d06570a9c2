"""`tidemill admission` where no cluster is needed: what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest
import yaml

from tidemill.cli import main


def run(capsys, *words):
    code = main(["admission", *words])
    return code, capsys.readouterr()


def test_policies_are_printed_with_a_binding_each(capsys):
    code, said = run(capsys, "render", "--controller-namespace", "gpu-engine")
    made = list(yaml.safe_load_all(said.out))
    policies = {each["metadata"]["name"]: each for each in made if each["kind"] == "MutatingAdmissionPolicy"}
    bound = {each["spec"]["policyName"] for each in made if each["kind"] == "MutatingAdmissionPolicyBinding"}
    assert code == 0
    assert bound == set(policies)
    for policy in policies.values():
        terms = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert {"kube-system", "gpu-engine"} <= set(terms[1]["values"])
    # Two patches that append are two gates; two apply configurations are one.
    kinds = {
        name.partition(".")[0]: each["spec"]["mutations"][0]["patchType"] for name, each in policies.items()
    }
    assert kinds.pop("services") == "JSONPatch"  # an atomic list, behind a condition that it is not there yet
    assert set(kinds.values()) == {"ApplyConfiguration"}


def test_a_webhook_has_one_configuration(capsys, tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    code, said = run(
        capsys, "render", "--service", "tidemill-system/webhook:8443", "--ca-file", str(ca), "--json"
    )
    (made,) = json.loads(said.out)
    client = made["webhooks"][0]["clientConfig"]
    assert code == 0
    assert client["service"] == {
        "namespace": "tidemill-system", "name": "webhook", "port": 8443, "path": "/mutate/namespaces"
    }  # fmt: skip
    assert client["caBundle"]
    code, said = run(capsys, "render", "--webhook", "https://10.0.0.7:8443/")
    assert (
        yaml.safe_load(said.out)["webhooks"][0]["clientConfig"]["url"]
        == "https://10.0.0.7:8443/mutate/namespaces"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("render", "--webhook", "http://a"), "not an https address"),
        (("render", "--service", "a"), "not NAMESPACE/NAME"),
        (("render", "--service", "a/b:c"), "not NAMESPACE/NAME"),
        (("render", "--service", "a/b", "--webhook", "https://a"), "not both"),
        (("render", "--ca-file", "x"), "for a webhook"),
        (("render", "--service", "a/b", "--ca-file", "/nowhere/ca.crt"), "cannot read /nowhere/ca.crt"),
        (("webhook", "--certificate", "/nowhere/a", "--key", "/nowhere/b"), "cannot use the certificate"),
        (("webhook", "--certificate", "a", "--key", "b", "--listen", "8443x"), "has no port"),
        (("status", "--kubeconfig", "/nowhere/config"), "/nowhere/config"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, words, sentence):
    code, said = run(capsys, *words)
    assert code == 2
    assert sentence in said.err
    assert "Traceback" not in said.err
