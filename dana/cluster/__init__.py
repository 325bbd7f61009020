"""Trainings over tables that lie on several servers."""
