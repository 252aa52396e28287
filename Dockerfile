# The CUDA version that the pinned torch's wheel is built for. The wheel brings CUDA's libraries and the host's container
# toolkit brings the driver's, so the smallest CUDA image is enough: its NVIDIA_* variables ask the toolkit for them.
# Ubuntu 24.04 has Python 3.12, for which every pin of constraints.txt can be installed; any base with apt will do.
# One stage: what only the installation needs goes in the step that brought it. A second stage would leave nothing else
# behind, but copy gigabytes of packages, and buildah reads what is copied from a stage anew in every build.
ARG BASE=nvidia/cuda:13.0.3-base-ubuntu24.04
FROM ${BASE}

ARG BASE
LABEL org.opencontainers.image.title="ampcheck" \
      org.opencontainers.image.description="Does mixed precision pay, and does a stopped run resume to the same bits?" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}"

# A mounted checkout may belong to another user, whom git would not trust: hence safe.directory.
# Versions are not pinned, because the distribution removes one as soon as it has the next.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends git python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* \
 && git config --system safe.directory '*' \
 && install -d -o 1000 -g 1000 /ampcheck

# Before the source, so that an edit installs nothing again.
# A configuration of pip that the build is given as a secret, say of a mirror, is in no layer.
WORKDIR /ampcheck
COPY constraints.txt pyproject.toml requirements.txt ./
ENV PATH=/opt/venv/bin:$PATH
# hadolint ignore=DL3008
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
 && python3 -m venv /opt/venv \
 && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
    > /tmp/dependencies.txt \
 && pip install --no-cache-dir -c constraints.txt -r /tmp/dependencies.txt -r requirements.txt \
 && apt-get purge -y --auto-remove python3-venv \
 && rm -rf /tmp/* /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*

# OMP_NUM_THREADS is left unset: ampcheck then gives torch the cores that the container may use, which only its host
# knows. Nothing here needs a second pool of threads, numpy's.
# USER and HOME, because docker run --user may name a user who has neither: DVC wants the one, matplotlib the other.
ENV CUBLAS_WORKSPACE_CONFIG=:4096:8 \
    HOME=/tmp \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONPATH=src \
    USER=ampcheck

# Outside /ampcheck, which a mounted checkout hides.
COPY --chmod=755 container/entrypoint.sh /opt/ampcheck/
COPY --chmod=755 container/without_git /opt/ampcheck/without_git
COPY --chown=1000:1000 . .
USER 1000:1000
ENTRYPOINT ["/opt/ampcheck/entrypoint.sh"]
CMD ["dvc", "repro"]
