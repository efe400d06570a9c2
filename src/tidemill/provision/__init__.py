"""How a launch becomes instances: what each provisioner makes of a pool and its blocks, in the words of `machines`."""

from tidemill.provision.provisioned import Provisioned as Provisioned
