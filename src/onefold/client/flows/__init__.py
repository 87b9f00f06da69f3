"""The calls of both clients, as flows: what is sent, and what is made of the answers."""
