\echo Use "ALTER EXTENSION dana UPDATE TO '0.3.0'" to load this file. \quit

