"""What an operator needs: start-up checks, replicas reloaded, the admin surface, decisions explained, warm-up."""
