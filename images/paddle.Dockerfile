# PaddlePaddle for NVIDIA GPUs.
#   make image && buildah bud -f images/paddle.Dockerfile -t train .
ARG CUDA=docker.io/nvidia/cuda:12.6.3-base-ubuntu24.04
FROM ${CUDA} AS made
RUN apt-get update && apt-get install -y --no-install-recommends \
        python3 python3-venv libgomp1 libibverbs1 ibverbs-providers librdmacm1 \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir paddlepaddle-gpu==3.3.1 --index-url https://www.paddlepaddle.org.cn/packages/stable/cu126/
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
