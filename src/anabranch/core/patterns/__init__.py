"""Regular expressions whose time does not grow with what is matched, as Kafka's (RE2)."""
