"""What Spark says in words of its own, told with its cause and what to do.

Rule kept: a fault is recognised by Spark's own words, wherever in the traces around them they
stand; what is not recognised stays as it is. A master is dialled before Spark is started, as Spark
tries for a minute and then stops without a sentence. Not here: what Spark's Python lacks
(`requirements.py`).
"""

from __future__ import annotations

import re
import socket

from anabranch.pipelines.faults import PipelineFault

DIAL_SECONDS = 5.0
"""For each address of a master: a machine that is there answers within a second."""
STANDALONE = re.compile(r"spark://(.+)")
OTHERS = re.compile(
    r"local(?:\[(?:[1-9]\d*|\*)(?:, *[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|k8s://.+"
)
"""Masters that Spark 4 knows; of another one it tells with traces that it cannot be parsed."""
NO_WORKER = re.compile(r"Python worker (?:failed )?to connect back")
GAVE_UP = "stopped SparkContext"
"""What is left of a session after Spark has tried its master for a minute."""
SENTENCES = (
    (
        NO_WORKER,
        "A Python worker of Spark did not connect to Spark in time. Either the machine is too "
        "busy, or its host name resolves to an address that is not its own. Try again when the "
        "machine has less work. If that does not help, let the host name resolve to 127.0.0.1 in "
        "/etc/hosts.",
    ),
)


class NoMaster(PipelineFault):
    """The master of a Spark cluster cannot be used; the text says why, and what to do."""


def remedy(fault: BaseException) -> str:
    """Cause and remedy of a fault that Spark tells without them; empty for any other fault."""
    text = str(fault)
    return next((sentence for words, sentence in SENTENCES if words.search(text)), "")


def refuse_unreachable(master: str) -> None:
    """Raise NoMaster where the address of a standalone master cannot be dialled, and for what no
    kind of master begins with. Of several addresses, one is enough. Other kinds of masters are left
    to Spark."""
    found = STANDALONE.fullmatch(master)
    if found is None and not OTHERS.fullmatch(master):
        raise NoMaster(
            f"{master!r} is no Spark master; write local[N] or local[*] for this machine, or "
            "spark://HOST:PORT for a cluster, in --master."
        )
    if found is None:
        return
    faults: list[str] = []
    for address in found[1].split(","):
        why = _dial(address)
        if not why:
            return
        faults.append(f"{address}: {why}")
    raise NoMaster(
        f"No Spark master can be reached ({'; '.join(faults)}). Start it, or correct --master; its "
        "web page shows its URL."
    )


def unusable(master: str, fault: BaseException) -> NoMaster:
    """The fault of a Spark that did not start with a master that can be dialled."""
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    told = next((each for each in lines if "Exception: " in each), lines[0])
    why = told.rpartition("Exception: ")[2].strip().rstrip(".")
    if GAVE_UP in why:
        why = "no master answered there"
    return NoMaster(
        f"Spark did not start with the master {master}: {why}. Check --master, and that the "
        "master runs the same version of Spark."
    )


def _dial(address: str) -> str:
    """Why an address cannot be dialled; empty when it can."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return "this is not HOST:PORT"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), DIAL_SECONDS):
            return ""
    except ConnectionRefusedError:
        return "nothing listens there"
    except TimeoutError:
        return f"no answer within {DIAL_SECONDS:g} s"
    except (OSError, OverflowError) as fault:
        return str(fault)
