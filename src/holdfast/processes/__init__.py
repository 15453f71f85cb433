"""Process trees: started under a keeper, watched, and ended with proof.

This package touches processes, cgroups and run directories. It does not touch the store or workspaces.
"""
