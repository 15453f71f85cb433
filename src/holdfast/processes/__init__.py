"""Process trees: launching them under a keeper, watching them, ending them with proof."""
