"""What executes a plan: schedulers, futures, transports, collectives, clusters."""
