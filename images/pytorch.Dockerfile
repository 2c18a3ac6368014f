# PyTorch for NVIDIA GPUs, with muster as its first process:
#   make image && buildah bud -f images/pytorch.Dockerfile -t train .
# The wheels of PyTorch bring CUDA's libraries, cuDNN and NCCL; so the base has only what the driver needs. Where extensions are compiled,
# take 13.2.0-devel-ubuntu24.04.
ARG CUDA=docker.io/nvidia/cuda:13.2.0-base-ubuntu24.04
FROM ${CUDA} AS made
# libibverbs and its providers: NCCL loads them for InfiniBand and RoCE.
RUN apt-get update && apt-get install -y --no-install-recommends \
        python3 python3-venv libibverbs1 ibverbs-providers librdmacm1 \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir torch==2.15.0 accelerate==1.15.0
ENV PATH=/opt/venv/bin:$PATH

# Any image that trains may stand for "made": from here on nothing but muster is added.
FROM made
USER 0:0
COPY --from=muster /muster /opt/muster/muster
# torchrun, accelerate, deepspeed and ssh are muster by these links: before the real ones in PATH, and where operators look for a server.
RUN ["/opt/muster/muster", "install", "/opt/muster", "--links=torchrun,accelerate,accelerate-launch,deepspeed,ds,fleetrun,ssh,sshd,pdsh"]
RUN ln -sf /opt/muster/muster /usr/sbin/sshd
ENV PATH=/opt/muster:$PATH
USER 1000:1000
WORKDIR /app
ENTRYPOINT ["muster", "run", "--"]
