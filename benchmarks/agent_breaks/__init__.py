"""Agent sessions whose prefix breaks, replayed on a real vLLM server: stock, blended, blended and repaired."""
