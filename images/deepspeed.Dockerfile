# DeepSpeed, which compiles its operators where it first needs them: with CUDA's compiler, and a home to keep them in.
#   make image && buildah bud -f images/deepspeed.Dockerfile -t train .
ARG CUDA=docker.io/nvidia/cuda:13.2.0-devel-ubuntu24.04
FROM ${CUDA} AS made
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential ninja-build libaio-dev python3-dev python3-venv libibverbs1 ibverbs-providers librdmacm1 \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir torch==2.15.0 \
    && /opt/venv/bin/pip install --no-cache-dir deepspeed==0.19.8 accelerate==1.15.0
# /tmp, for a file system that may be read-only: mount something there that outlives the pod, and operators are compiled once.
ENV PATH=/opt/venv/bin:$PATH TORCH_EXTENSIONS_DIR=/tmp/torch_extensions TRITON_CACHE_DIR=/tmp/triton

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
