"""The data plane of a real API server: instances of the account boot as its Nodes, and kubelets run the pods on them.

    account -> nodes -> write queue -> API server -> pod watch -> kubelets -> write queue

What happens is decided in the account's turn and in virtual time; what is written to Kubernetes has wall time, is sent
by threads of its own and never holds up the account.
"""
