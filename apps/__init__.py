"""Applications for ``uvicorn apps.<name>.main:app``; the commands ``semgate proxy`` and ``semgate router`` do more."""
