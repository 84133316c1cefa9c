"""The proof on a real GPU: steps in processes of their own, one file of evidence."""
