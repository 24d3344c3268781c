# The image of the daemon: its flags are the container's arguments.
#
#   docker run -p 9000:9000 -p 9090:9090 IMAGE --seed-count 32 --addr :9000 --metrics-addr :9090
#
# It runs as a user without a name and with a read-only root file system. For a durable state, mount
# a volume that uid 65532 may write and name a file on it: --state /var/lib/bigfleet-azure/state.db

# Both stages must carry the same Python at the same path: the environment is copied from one to the other.
ARG BUILD_IMAGE=python:3.13-slim-trixie
ARG BASE_IMAGE=python:3.13-slim-trixie

FROM ${BUILD_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1

WORKDIR /build

# The packages come first, so that a change of our own code leaves this layer as it is.
COPY requirements/ requirements/
RUN python3 -m venv /opt/builder \
    && python3 -m venv --without-pip /opt/bigfleet-azure \
    && /opt/builder/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python install \
        --require-hashes --only-binary :all: -r requirements/runtime.txt

COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
# sqlite-utils asks for pip only to install plug-ins of its own command line; a running daemon must
# not be able to install anything. Bytecode is compiled here because nothing can be written later;
# unchecked hashes make it independent of file times.
RUN /opt/builder/bin/pip wheel --no-build-isolation --no-deps --wheel-dir dist . \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python install --no-deps dist/*.whl \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python uninstall --yes pip \
    && /opt/bigfleet-azure/bin/python -m compileall -q -j 0 \
        --invalidation-mode unchecked-hash /opt/bigfleet-azure/lib


FROM ${BASE_IMAGE}

LABEL org.opencontainers.image.title="bigfleet-azure" \
      org.opencontainers.image.description="Azure capacity provider for the BigFleet fleet autoscaler" \
      org.opencontainers.image.licenses="MIT"

# The base brings a pip and, for new environments, the wheel of another.
RUN find / -xdev \( -path '*-packages/pip' -o -path '*-packages/pip-*.dist-info' \
        -o -path '*/python3*/ensurepip' -o -path '/usr/local/bin/pip*' -o -path '/usr/bin/pip*' \) \
        -prune -exec rm -rf {} + \
    && install -d -o 65532 -g 65532 -m 0700 /var/lib/bigfleet-azure

COPY --from=build /opt/bigfleet-azure /opt/bigfleet-azure

ENV PATH=/opt/bigfleet-azure/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

USER 65532:65532

# gRPC, then HTTP (metrics, health, readiness).
EXPOSE 9000 9090

ENTRYPOINT ["/opt/bigfleet-azure/bin/python", "-m", "bigfleet_azure"]
