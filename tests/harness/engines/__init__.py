"""Private container engines for tests and campaigns: started, killed, stopped and started again on purpose."""
