"""Simulated clients: they speak the messages of real ones, and write down what they saw."""
