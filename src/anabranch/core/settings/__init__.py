"""Settings: every topic and broker setting by name, what they mean, and their effective values."""

from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS

__all__ = ["BROKER_SETTINGS", "TOPIC_SETTINGS"]
