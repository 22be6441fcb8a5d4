"""Decisions about brokers and controllers: who is registered, alive, fenced, cordoned, full."""
