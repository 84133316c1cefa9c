"""``uvicorn apps.proxy.main:app``, set up by the environment."""
