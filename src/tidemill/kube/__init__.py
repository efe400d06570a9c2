"""`ports.Cluster` over a Kubernetes API server. It knows no rule of the engine, and nothing of AWS but providerIDs."""
