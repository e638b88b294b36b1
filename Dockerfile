# Training and evaluation in a container. Build it in a clone:  docker build -t crt .
#   docker run --gpus all -v "$PWD/runs:/work/runs" crt train recipe.toml
# The default extra is `train`; for vLLM:  docker build --build-arg EXTRAS=train,report,vllm -t crt .
FROM python:3.11-slim-bookworm

ARG EXTRAS=train,report,serve
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HUB_DISABLE_TELEMETRY=1

WORKDIR /opt/crt
COPY pyproject.toml constraints.txt README.md LICENSE MANIFEST.in ./
COPY src ./src
RUN python -m pip install --constraint constraints.txt ".[${EXTRAS}]" \
    && useradd --create-home --uid 1000 crt \
    && install --directory --owner=crt /work

USER 1000
WORKDIR /work
ENTRYPOINT ["crt"]
CMD ["--help"]
