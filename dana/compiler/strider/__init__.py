"""The program that walks a page of the table, and the descriptors of its columns."""
