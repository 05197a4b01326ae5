"""What others implement, as Protocols whose docstrings are the contract, and the types that both sides exchange."""
