"""Tells the service manager how a node is: systemd's notification protocol (`sd_notify(3)`).

What: one datagram to the socket that `NOTIFY_SOCKET` names, such as READY=1 or STOPPING=1. Rule
kept: a node never fails for want of a manager, or for one that does not listen. Source: systemd's
page sd_notify(3). Not here: the unit (`packaging/anabranch@.service`).
"""

from __future__ import annotations

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str, status: str = "") -> bool:
    """Tell a state, and a line for `systemctl status`; whether a manager was told."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address[0] == "@":  # an abstract name
        address = "\0" + address[1:]
    text = f"{state}\nSTATUS={status}" if status else state
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.setblocking(False)
        to.sendto(text.encode(), address)
        return True
    return False
