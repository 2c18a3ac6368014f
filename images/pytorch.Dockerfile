# A training image, which shows the copying. BASE has Python and PyTorch.
ARG BASE=pytorch/pytorch:latest
FROM ${BASE}
COPY --from=muster /muster /usr/local/bin/muster
WORKDIR /work
ENTRYPOINT ["muster", "run", "--"]
