"""A real Kubernetes control plane on this machine, for the tests: built from Go modules, started on loopback.

`build.py` makes the binaries once per version, `start.py` runs them. No kubelet and no container is involved: nodes
are objects, and whoever wants pods to run on them plays the kubelet (`tidemill sim aws --kube-api`, or kwok).
"""
