"""Client quotas: what can be limited, the limits that hold, and what has been used."""
