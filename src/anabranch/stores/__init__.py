"""Engines behind interfaces of core: object stores, batch coordinators, metadata stores."""
