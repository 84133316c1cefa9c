"""Applications for ``uvicorn apps.<name>.main:app``; the commands ``kvmend proxy`` and ``kvmend route`` do more."""
