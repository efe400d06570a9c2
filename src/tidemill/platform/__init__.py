"""The platform around the pools: its secrets, and later its infrastructure, the checklist and the trap linter.

Everything here is safe to repeat: what is there is left as it is. What cannot be looked at is "cannot tell", never
"missing". Adapters (`aws`, `kube`) do the looking and writing behind the Protocols of these modules.

    oidc.py      identity providers as they are configured: a JSON array, checked
    secrets/     the secrets of a deployment in Secrets Manager: which there are, what must be in them, making them
"""
