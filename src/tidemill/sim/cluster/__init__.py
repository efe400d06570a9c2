"""The simulated Kubernetes cluster: API objects, scheduler, kubelets, controllers and a small Karpenter."""
