"""The native provisioner: a launch is a template and one call of RunInstances, for every kind of source.

The template is a pure function of the documents and the source; putting it is cheap once it is there. What cannot be
launched as it is written gives nothing, like a source that is empty: the engine backs off, and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from tidemill.model.capacity import Source
from tidemill.model.errors import NoCapacity, PortError, Refused, SpecError, TidemillError
from tidemill.model.labels import Pairs
from tidemill.model.purchases import LaunchIntent
from tidemill.ports.compute import Compute, LaunchRequest
from tidemill.provision.images import Images
from tidemill.provision.launch_template import check_nodes_can_join, launch_template
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner

log = logging.getLogger("tidemill.provision")


EndsAt = Callable[[Source, Provisioner], datetime | None]


class NativeLauncher:
    def __init__(self, spec: Spec, compute: Compute, images: Images, ends_at: EndsAt) -> None:
        """`ends_at`: a source's deadline, which the node's own deadline agent is told at boot."""
        self._spec, self._compute, self._images, self._ends_at = spec, compute, images, ends_at
        self._joining: set[str] = set()  # roles that may join, as far as this process has seen to it

    def launch(self, intent: LaunchIntent, tags: Pairs) -> Sequence[str]:
        try:
            order = self._order(intent, tags)
            self._let_join(intent.pool)
            return self._compute.run(order)
        except PortError:
            raise
        except (SpecError, Refused) as no:
            raise NoCapacity(str(no)) from no

    def _order(self, intent: LaunchIntent, tags: Pairs) -> LaunchRequest:
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
        )

    def _let_join(self, pool: str) -> None:
        """An access entry for the nodes' role. Without one aws-auth may still let them in: nobody is stopped."""
        node_class = self._spec.node_classes[self._spec.pools[pool].spec.node_class_name]
        role = node_class.spec.role or self._spec.platform.spec.node_role
        unknown = not role or ":instance-profile/" in role  # nobody can tell which role is in a profile
        if not self._images.boots or unknown or role in self._joining:
            return
        try:
            self._compute.let_nodes_join(role)
            self._joining.add(role)
        except TidemillError as error:
            log.warning("no access entry for %s, and its nodes join only by aws-auth: %s", role, error)
