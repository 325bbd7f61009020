"""Decisions about values, before any operation is made: in which section, in which form, in whose shard."""
