"""Device samples become energy, utilization and throttling."""
