"""Public test tools: the scripted agent's scenarios and player. Users rehearse with them."""
