"""How a node treats requests, whatever they mean."""
