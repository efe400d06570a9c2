"""The simulated Kubernetes cluster: API server, scheduler, kubelets, controllers. It shares no rule with the engine."""
