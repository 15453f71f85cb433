"""Code that several agent adapters share: the CLI adapter, provider errors, the environment, versions."""
