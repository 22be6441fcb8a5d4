"""The batch coordinator of diskless topics: its engines, and which one a URL names."""
