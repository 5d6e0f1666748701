"""Other ways to attend than `multi_head`, one file each."""
