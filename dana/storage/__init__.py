"""PostgreSQL's pages: layout, table schemas, a reference reader and a page builder."""
