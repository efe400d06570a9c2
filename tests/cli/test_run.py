"""`tidemill run` and the verbs with --kube: what is refused before anything is reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.provision.documents import documents
from tidemill.cli import main
from tidemill.cli.controller_engines import lacks

DOCUMENT = """
apiVersion: tidemill.dev/v1alpha1
kind: Platform
metadata: {name: mill}
spec:
  region: us-east-1
  deployment: mill
  cluster: {name: mill, endpoint: "https://eks.example.com"}
"""
KUBECONFIG = """
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
current-context: here
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The documents and a kubeconfig."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "TIDEMILL_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs.yaml").write_text(DOCUMENT)
    (tmp_path / "config").write_text(KUBECONFIG)
    return str(tmp_path / "docs.yaml"), str(tmp_path / "config")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process: it installs signal handlers and configures logs."""
    return subprocess.run(
        (sys.executable, "-m", "tidemill", "run", *arguments), capture_output=True, text=True, check=False, timeout=60
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "code", "sentence"),
    [
        ((), 2, "add --aws"),
        (("--aws", "--replicas", "2"), 2, "2 replicas need a ledger on PostgreSQL"),
        (("--aws", "--ledger", "memory:"), 2, "needs a ledger that lasts"),
        (("--aws", "--lease-duration", "2s"), 2, "is too short"),
        (("--aws", "--kubeconfig", "nothing-here"), 2, "there is no kubeconfig nothing-here"),
        (("--aws", "--kubeconfig", "config", "--context", "prod"), 2, "has no context 'prod'"),
        (
            ("--aws", "--kubeconfig", "config"),
            1,
            "is at https://eks.example.com, but this kubeconfig reaches",
        ),
        (("--aws", "--metrics-addr", "8080"), 2, "is not an address"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    files: tuple[str, str], more: tuple[str, ...], code: int, sentence: str
):
    if "--metrics-addr" in more:
        Path(files[0]).write_text(DOCUMENT.replace('endpoint: "https://eks.example.com"', ""))
        more = (*more, "--kubeconfig", "config")
    done = _run("-f", files[0], *more)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_pool_lacks_before_it_is_launched_or_bought_for():
    whole = documents()
    assert lacks(whole, "train") == ()
    bare = documents(platform={"nodeRole": ""})
    assert lacks(bare, "train") == ("Platform prod: spec.nodeRole is not set",)
    assert lacks(bare, "gone") == ()
    assert lacks(documents(platform={"nodeRole": ""}, provisioner="karpenter"), "train") == ()


def test_bad_documents_end_it_before_anything_else(files: tuple[str, str]):
    Path(files[0]).write_text(DOCUMENT.replace("region", "regoin"))
    done = _run("-f", files[0], "--aws", "--kubeconfig", files[1])
    assert done.returncode == 2
    assert "regoin" in done.stderr


# --- verbs that look ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("status", "--kube", "docs.yaml"), "add --aws"),
        (("status", "--kube", "--aws"), "--kube needs the documents"),
        (("status", "--aws", "docs.yaml"), "--aws needs --kube here"),
        (("status", "--context", "here", "demo"), "need --kube"),
        (("status", "--kube", "--aws", "--at", "1h", "docs.yaml"), "--at works with scenarios only"),
        (("plan", "--kube", "docs.yaml"), "add --aws"),
        (("why", "pod", "--kube", "docs.yaml"), "add --aws"),
        (("blocks", "--kube", "-f", "docs.yaml"), "add --aws"),
        (("costs", "--kube", "-f", "docs.yaml", "sqlite:///l.db"), "add --aws"),
        (("handover", "a", "--dry-run", "--kube", "-f", "docs.yaml"), "add --aws"),
        (
            ("status", "--kube", "--aws", "--kubeconfig", "nothing", "docs.yaml"),
            "there is no kubeconfig nothing",
        ),
    ],
)
def test_a_live_verb_says_what_is_missing(
    files: tuple[str, str], words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_kubeconfig_in_the_environment_does_not_change_what_a_verb_means(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("KUBECONFIG", files[1])
    assert main(["status", "demo", "--json"]) == 0
    assert '"simulated": true' in capsys.readouterr().out


def test_help_needs_no_client_of_kubernetes():
    code = (
        "import sys; sys.modules.update(lightkube=None, httpx2=None, msgspec=None, structlog=None, "
        "prometheus_client=None); from tidemill.cli import main; "
        "sys.exit(main(['run', '--help']) or main(['status', '--help']) or main(['status', 'demo', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_without_the_client_the_sentence_says_what_to_install(files: tuple[str, str]):
    code = (
        "import sys; sys.modules.update(lightkube=None, httpx2=None, msgspec=None); from tidemill.cli import main; "
        f"sys.exit(main(['run', '-f', {files[0]!r}, '--aws']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "pip install 'tidemill[aws,kube]'" in done.stderr
    assert "Traceback" not in done.stderr
