# flashladder without anything else installed: docker build -t flashladder . && docker run -it --rm flashladder
#
# The image holds the pinned toolkit and one version that is built; no GPU and no CUDA installation is needed.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates g++ gcc git libc6-dev make python3 python3-venv && rm -rf /var/lib/apt/lists/*
RUN useradd -m user && install -d -o user -g user flashladder
USER user
WORKDIR flashladder
COPY --chown=user:user . .
RUN make v07 && ./bin/v07
CMD ["bash"]
