"""One session of PostgreSQL: calls of the extension, columns into tables, what came back, what the server said."""
