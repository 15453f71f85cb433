"""Tools to rehearse without a provider: the scripted agent's scenarios and player, and the stub LLM server.

They are part of the product, because users rehearse with them. The stub serves only on loopback.
"""
