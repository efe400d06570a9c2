"""How a launch becomes instances: what each provisioner makes of a pool and its blocks, in the words of `machines`."""

from tidemill.provision.provisioned_cloud import Provisioned as Provisioned
