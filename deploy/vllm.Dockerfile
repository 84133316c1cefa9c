# vLLM with SemBlend's connector: docker build -f deploy/vllm.Dockerfile -t semblend-vllm .
# The engine's image must not be moved: its versions are held, so that only what is missing is added.
ARG VLLM_IMAGE=vllm/vllm-openai:v0.32.0
FROM ${VLLM_IMAGE}
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN python3 -m pip list --format=freeze > /source/held.txt \
    && python3 -m pip install --no-cache-dir --constraint /source/held.txt '/source[vllm]' \
    && useradd --uid 10001 --create-home semblend
USER 10001
# Compiled loops and kernels are kept here.
ENV HOME=/home/semblend NUMBA_CACHE_DIR=/tmp/numba SEMBLEND_EMBEDDER=none
WORKDIR /home/semblend
ENTRYPOINT ["vllm", "serve"]
