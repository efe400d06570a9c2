"""The eight steps from an empty account to GPUs in use, each with its checks: done, missing, or cannot tell.

    views.py     what is looked at: facts of the account and the cluster, and the Protocols that bring them
    findings.py  what a check found: data, from which sentences and commands are made
    steps.py     the checks, step by step

A look that fails is "cannot tell" with the reason, never "missing". Nothing is changed.
"""

from tidemill.platform.checklist.findings import CheckKind, Finding, State, Step
from tidemill.platform.checklist.steps import run_checklist
from tidemill.platform.checklist.views import AccountView, ClusterView, Views

__all__ = ["AccountView", "CheckKind", "ClusterView", "Finding", "State", "Step", "Views", "run_checklist"]
