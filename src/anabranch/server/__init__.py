"""One node as a process: sockets, disks, SQL; it acts on what `core` decides."""
