"""Policy for agents, on top of runs: timeouts by task, estimates, retries, circuit breakers, loops."""
