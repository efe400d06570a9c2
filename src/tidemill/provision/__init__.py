"""How a launch becomes instances: what each provisioner makes of a pool and its blocks, in the words of `compute`."""

from tidemill.provision.provisioned_cloud import ProvisionedCloud as ProvisionedCloud
