"""The home and its machine, for interfaces: init, doctor, sweep, purge, backup and restore, the supervisor process and
its systemd service. These modules may touch every file of the home and our entries in the users' repositories."""
