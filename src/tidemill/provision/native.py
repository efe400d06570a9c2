"""The native provisioner: a launch is a launch template and one RunInstances call, for every kind of source.

The template is a pure function of the documents and the source, and putting it again is cheap. A launch that the
documents or AWS do not allow is refused: the engine backs off from the source until the documents change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from tidemill.model.capacity import Source
from tidemill.model.errors import Refused, SpecError, TidemillError
from tidemill.model.labels import Pairs
from tidemill.model.purchases import LaunchIntent
from tidemill.ports.compute import Compute, LaunchRequest
from tidemill.provision.images import Images
from tidemill.provision.launch_template import check_nodes_can_join, launch_template
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner

log = logging.getLogger("tidemill.provision")
DOCUMENTS = "documents"  # code of a launch that they do not allow


EndsAt = Callable[[Source, Provisioner], datetime | None]


class NativeLauncher:
    def __init__(self, spec: Spec, compute: Compute, images: Images, ends_at: EndsAt) -> None:
        """`ends_at`: the deadline of a source, which the node's own deadline agent learns at boot."""
        self._spec, self._compute, self._images, self._ends_at = spec, compute, images, ends_at
        self._joined_roles: set[str] = set()  # roles with an access entry, as far as this process knows

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        try:
            request = self._request(intent, tags)
            self._let_nodes_join(intent.pool)
            return self._compute.run(request)
        except SpecError as error:
            raise Refused(str(error), code=DOCUMENTS) from error

    def _request(self, intent: LaunchIntent, tags: Pairs) -> LaunchRequest:
        pool = self._spec.pools.get(intent.pool)
        if pool is None:
            raise SpecError(f"there is no pool '{intent.pool}' any more")
        if self._images.boots:
            check_nodes_can_join(self._spec, pool)
        node_class = self._spec.node_classes[pool.spec.node_class_name]
        reference = node_class.spec.launch_template
        template = launch_template(
            self._spec,
            pool,
            intent.instance_type,
            intent.source,
            intent.zone,
            self._images.image_id(node_class, intent.instance_type),
            ends_at=self._ends_at(intent.source, pool.spec.provisioner),
            base=self._images.existing(reference) if reference is not None else None,
        )
        return LaunchRequest(
            token=intent.id,
            template=self._compute.put_template(template),
            source=intent.source,
            instance_type=intent.instance_type,
            zone=intent.zone,
            subnets=tuple(self._spec.platform.spec.subnets[intent.zone]),
            count=intent.count,
            tags=tags,
            least=intent.least,
        )

    def _let_nodes_join(self, pool: str) -> None:
        """Create an access entry for the nodes' role. A failure stops no launch: aws-auth may still let them join."""
        node_class = self._spec.node_classes[self._spec.pools[pool].spec.node_class_name]
        role = node_class.spec.role or self._spec.platform.spec.node_role
        unknown = not role or ":instance-profile/" in role  # the role inside a profile is not known
        if not self._images.boots or unknown or role in self._joined_roles:
            return
        try:
            self._compute.let_nodes_join(role)
            self._joined_roles.add(role)
        except TidemillError as error:
            log.warning("no access entry for %s, so its nodes join only through aws-auth: %s", role, error)
