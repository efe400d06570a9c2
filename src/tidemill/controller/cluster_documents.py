"""The documents as objects of the cluster: `DocumentSource` over an API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.catalog import Catalog
from tidemill.model.errors import Retryable
from tidemill.spec import Spec
from tidemill.spec.accept import Accepted, Object, accept, generation_of, name_of


class ClusterDocuments:
    """`listed` lists the objects. `lower` lowers what they may spend to this process's own ceilings."""

    def __init__(
        self,
        listed: Callable[[], Sequence[Mapping[str, Any]]],
        lower: Callable[[Spec], Spec],
        catalog_of: Callable[[str], Catalog] | None = None,
    ) -> None:
        self._listed, self._lower, self._catalog_of = listed, lower, catalog_of
        self.objects: tuple[Object, ...] = ()
        self.accepted = Accepted()

    def digest(self) -> str:
        self.objects = tuple(self._listed())
        return "\n".join(
            sorted(
                f"{name_of(one)} {one['metadata'].get('uid')} {generation_of(one)}" for one in self.objects
            )
        )

    def load(self) -> Spec:
        """Retryable: there is no Platform that can be used, yet."""
        self.accepted = accept(self.objects, self.accepted, self._catalog_of)
        if self.accepted.spec is None:
            why = self.problem or "apply one: kubectl apply -f platform.yaml"
            raise Retryable(f"the cluster has no Platform object that can be used: {why}", code="no-platform")
        return self._lower(self.accepted.spec)

    @property
    def problem(self) -> str:
        errors = (problem for problem in self.accepted.problems if problem.severity == "error")
        return "; ".join(f"{problem.file}: {problem.message}" for problem in errors)
