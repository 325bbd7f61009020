"""What `dana_predict` evaluates in a PostgreSQL backend: encoded, read back, followed."""
