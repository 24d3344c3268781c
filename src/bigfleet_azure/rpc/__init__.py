"""The gRPC edge: translation between the wire and the service, and nothing else."""
