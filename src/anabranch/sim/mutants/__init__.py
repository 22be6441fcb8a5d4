"""Broken rules that the simulator or a test must find, a module for each room of the code."""
