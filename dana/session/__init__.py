"""One session of PostgreSQL: calls of the extension, loading of tables, results, messages of the server."""
