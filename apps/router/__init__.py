"""``uvicorn apps.router.main:app``, set up by the environment."""
