"""The wall: the only vocabulary that source and target share. One integer a sample, and K."""
