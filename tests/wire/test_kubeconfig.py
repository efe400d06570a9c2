"""Which API server a kubeconfig leads the simulated kubelets to, and what is said where it leads nowhere."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tidemill.cli.sim_aws import aws
from tidemill.model.errors import SpecError
from tidemill.sim.wire.data_plane.kubeconfig import read_kubeconfig

PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def kubeconfig(folder: Path, *, user: dict[str, Any] | None = None, **given: Any) -> Path:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": "ca.crt"}
    written = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "one", "user": "me"}}],
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "me", "user": user or {"token": "secret"}}],
    } | given
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(written))
    return path


def test_files_are_found_beside_it(tmp_path: Path):
    user = {"client-certificate": "me.crt", "client-key": str(tmp_path / "elsewhere" / "me.key")}
    api = read_kubeconfig(kubeconfig(tmp_path, user=user))
    assert (api.url, api.token, api.verify) == ("https://127.0.0.1:6443", "", True)
    assert (api.ca, api.certificate) == (str(tmp_path / "ca.crt"), str(tmp_path / "me.crt"))
    assert api.key == str(tmp_path / "elsewhere" / "me.key")


def test_certificates_can_be_in_it(tmp_path: Path):
    data = b64encode(PEM.encode()).decode()
    api = read_kubeconfig(
        kubeconfig(tmp_path, user={"client-certificate-data": data, "client-key-data": data})
    )
    assert (api.certificate, api.key) == (PEM, PEM)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "kubeconfig"]  # no key is left in a file


def test_a_token_can_be_in_a_file(tmp_path: Path):
    (tmp_path / "token").write_text("secret\n")
    assert read_kubeconfig(kubeconfig(tmp_path, user={"tokenFile": "token"})).token == "secret"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": {"exec": {"command": "aws"}}}, "logs in with a program"),
        ({"user": {"tokenFile": "nowhere"}}, "tokenFile"),
        ({"user": {"client-key-data": "%%"}}, "client-key-data"),
        ({"current-context": "other"}, "has no context 'other'"),
        ({"clusters": []}, "has no cluster 'one'"),
        ({"clusters": [{"name": "one", "cluster": {}}]}, "has no server"),
    ],
)
def test_what_leads_nowhere_is_refused_in_one_sentence(tmp_path: Path, given: dict[str, Any], said: str):
    with pytest.raises(SpecError, match=said):
        read_kubeconfig(kubeconfig(tmp_path, **given))


@pytest.mark.parametrize("text", ["", "- a list", "a: [b", None])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str | None):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match="--kubeconfig"):
        read_kubeconfig(path)


def test_a_kubeconfig_and_a_url_are_one_too_many(tmp_path: Path):
    given = ["--port", "0", "--kubeconfig", str(kubeconfig(tmp_path)), "--kube-api", "https://127.0.0.1:1"]
    done = CliRunner().invoke(aws, given)
    assert isinstance(done.exception, SpecError)
    assert "leave --kube-api" in str(done.exception)
