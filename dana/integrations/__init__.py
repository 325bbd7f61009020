"""DAnA in other systems: metrics for Prometheus."""
