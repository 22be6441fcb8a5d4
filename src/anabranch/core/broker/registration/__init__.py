"""How a node's broker and controller register, and how they find the active controller."""
