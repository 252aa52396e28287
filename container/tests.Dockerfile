# The image with what its smoke tests need; also how an image of your own adds packages.
ARG IMAGE=ampcheck
FROM ${IMAGE}
USER 0
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --no-cache-dir -c constraints.txt pytest
USER 1000:1000
