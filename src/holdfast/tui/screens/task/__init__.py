"""What the screen of one task is made of: its pages, and the paper that they write on."""
