"""References that several test folders compare with, each written from a document and from nothing else."""
