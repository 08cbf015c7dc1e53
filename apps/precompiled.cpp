// Nothing: its target precompiles headers for others.
