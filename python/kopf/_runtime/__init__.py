"""How user code runs: loading, logging, contexts, logins, and the border with the engine (`bridge` alone)."""
