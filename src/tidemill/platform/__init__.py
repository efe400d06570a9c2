"""The platform around the pools: its secrets, the linter of traps, and later its infrastructure and the checklist.

Everything here is safe to repeat: what is there is left as it is. What cannot be looked at is "cannot tell", never
"missing". Adapters (`aws`, `kube`) do the looking and writing behind the Protocols of these modules.

    oidc.py      identity providers as they are configured: a JSON array, checked
    secrets/     the secrets of a deployment in Secrets Manager: which there are, what must be in them, making them
    lint/        traps in files of any origin: documents, Karpenter, Helm, CloudFormation, Kubernetes
"""
