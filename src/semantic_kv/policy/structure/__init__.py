"""Orders over blocks that compiled policies share: linked lists (O(1)) and an indexed heap (O(log n))."""
