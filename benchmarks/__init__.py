"""Measurements, each as a ratio to a reference measured in the same run on the same machine.

One file for each question, each runnable (``python -m benchmarks.speed.epoch``); ``python -m benchmarks`` runs them
all.
"""
