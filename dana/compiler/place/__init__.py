"""Decisions about values, before any operation is made: their section, their form, their shard."""
