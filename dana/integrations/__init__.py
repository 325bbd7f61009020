"""DAnA in other systems: metrics for Prometheus, models in MLflow, trainings on Ray."""
