"""What `server` still decides about a connection: every function of it that branches, and why.

Order, budgets, mutes and outcomes are decided in `core/node`. A function that is added here, or
that begins to branch, fails this test until its line says what it decides; whoever writes the line
asks first whether that belongs to core.
"""

from __future__ import annotations

import ast
from pathlib import Path

import anabranch.server

FILES = (
    "connection.py", "link.py", "listener.py", "open_connections.py", "receive_memory.py",
    "request_shell.py", "turns.py", "warmer.py",
)  # fmt: skip
BRANCHES = (ast.If, ast.IfExp, ast.While, ast.Match, ast.BoolOp, ast.Try)

DECIDES = {
    # Bytes to frames, and memory for what is not whole.
    "Connection.connection_made": "whether there is a socket and an address to speak of",
    "Connection.secured": "whether a client that has shown its certificate may stay",
    "Connection.connection_lost": "whether a large frame was on its way",
    "Connection.get_buffer": "where the next bytes go, and how many at once",
    "Connection.buffer_updated": "whether a large frame is whole; how long the event took",
    "Connection.eof_received": "whether the loop closes the socket, or the link when it has sent",
    "Connection._cut_frames": "where a frame ends; that it is too large; when the turn is over",
    "Connection._take": "that a connection waits for memory",
    "Connection._start_large_frame": "that there is no memory; that it is another protocol",
    "Connection._refuse_size": "which sentence says what is wrong with a size",
    "Connection.memory_freed": "whether the connection still takes requests",
    "Connection.is_waited_for": "that a connection which waits for memory is not idle",
    "Connection.look": "that a peer which takes bytes is active",
    # The socket.
    "Link.__init__": "whether it can lend: a plain socket, not encrypted",
    "Link.unsent_bytes": "whether parts of files are on their way",
    "Link.send": "past the transport or through it; joined or not",
    "Link._send_lent": "whether what is lent can go past the transport",
    "Link._sender_of": "the same: it encrypts, has more to send, or there is no handle",
    "Link._lent_sent": "whether it was sent",
    "Link.blame": "whether a fault is the peer's",
    "Link._follow": "whether the transport reads: the channel wants it and there is memory",
    "Link.close": "in order or at once, as it is told",
    "Link.stop": "whether something lent is to be stopped",
    "is_of_peer": "whether a fault is the peer's",
    # Who may connect, and for how long.
    "Acceptor.__init__": "whose turns they are",
    "Acceptor._protocol": "whether connections are encrypted",
    "Acceptor.session": "whether the listener asks its clients for anything",
    "Acceptor._say_bad": "whether there is room for a line",
    "Acceptor._reload": "whether a file with keys has changed",
    "Acceptor.bind": "whether an address can be bound",
    "Acceptor._size_buffers": "whether somebody has chosen a size of buffers",
    "Acceptor.stop_accepting": "what was begun and is to end",
    "Acceptor.drain": "whether everything owed was sent, or the time is over",
    "Acceptor.admit": "whether there is room for a connection",
    "Acceptor.hung_up": "whether a reason is the node's own; whether there is room for a line",
    "Acceptor._hold": "whether there is room for one more that came too soon",
    "Acceptor._refuse": "whether a line was written of late",
    "Acceptor._sweep": "which connections are idle",
    "OpenConnections.remove": "whether a connection had been let in",
    "OpenConnections.make_room": "which client has been silent for longest",
    # Memory that all connections share.
    "ReceiveMemory.__init__": "whether there is a limit",
    "ReceiveMemory.release": "whether somebody who waits may go on",
    "ReceiveMemory._let_go_on": "who goes on: the one that has waited for longest",
    # Calls, time and turns.
    "RequestShell.wake_waiting": "whether anybody waits",
    "RequestShell._ended": "whether a call ended, or the node stopped before",
    "RequestShell._arm": "whether the timer rings early enough",
    "RequestShell.stop": "whether a timer is set",
    "LoopTurns.__init__": "",
    "LoopTurns.go_on": "whether a turn is planned",
    "LoopTurns._turn": "nothing: `core.node.turns` says who is next",
    "LoopTurns._serve": "whether a connection still has something to run",
    "Warmer.warm": "which reads are under way already; whether there are threads",
    "Warmer.stop": "whether there are threads",
    "_tell": "whether a read was made, or the node stopped before",
}


def functions(tree: ast.Module) -> dict[str, ast.AST]:
    """The functions of a module by their qualified names."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{each.name}"] = each
    return found


def test_server_decides_no_more_about_a_connection_than_this():
    folder = Path(anabranch.server.__file__).parent
    branching = set()
    for name in FILES:
        for function, node in functions(ast.parse((folder / name).read_text())).items():
            if any(isinstance(each, BRANCHES) for each in ast.walk(node)):
                branching.add(function)
    assert branching == {name for name, what in DECIDES.items() if what}
