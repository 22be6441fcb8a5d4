"""Clients that do nothing but TLS handshakes: `handshake_storm.py PORT SECONDS` prints how many
were done, and in how many seconds."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time

CLIENTS = 32
TIMEOUT_SECONDS = 30.0


def main() -> None:
    """All clients, each in a thread of its own: OpenSSL works beside the others."""
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    done = [0] * CLIENTS
    begin = time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - begin < seconds:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as plain:
                context.wrap_socket(plain).close()
            done[number] += 1

    threads = [threading.Thread(target=work, args=(each,)) for each in range(CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(sum(done), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
