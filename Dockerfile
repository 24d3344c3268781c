# The image of the daemon: its flags, or a command such as `machines list`, are the container's arguments.
#
#   docker build -t bigfleet-azure .
#   docker run --rm -p 9000:9000 -p 9090:9090 bigfleet-azure --seed-count 32 --addr :9000 --metrics-addr :9090
#
# It runs as uid 65532 with a read-only root file system and holds neither a shell nor pip. For a
# durable state, mount a volume that uid 65532 may write and name a file on it:
# --state /var/lib/bigfleet-azure/state.db
#
# A package index of your own is given as pip's configuration file, and leaves no trace in the image:
# --secret id=pip,src=pip.conf

# Tags move. A build to be repeated names digests: --build-arg BASE_IMAGE=NAME@sha256:…
ARG BUILD_IMAGE=python:3.13-slim-trixie
ARG BASE_IMAGE=gcr.io/distroless/python3-debian13:nonroot

FROM ${BUILD_IMAGE} AS build

# The interpreter of BASE_IMAGE: of the same minor version as that of BUILD_IMAGE, at any path.
ARG BASE_PYTHON=/usr/bin/python3

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1

WORKDIR /build

# The packages come first, so that a change of our own code leaves this layer as it is.
COPY requirements/ requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/builder \
    && python3 -m venv --without-pip /opt/bigfleet-azure \
    && /opt/builder/bin/pip install --require-hashes --only-binary :all: -r requirements/image.txt \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python install --no-compile \
        --require-hashes --only-binary :all: -r requirements/runtime.txt

COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
# sqlite-utils asks for pip only to install plug-ins of its own command line; a running daemon must
# not be able to install anything. The bill of materials is validated as it is written. Bytecode is
# compiled here because nothing can be written later; unchecked hashes make it independent of file
# times. Last, the environment is turned from this stage's interpreter to that of the base.
RUN /opt/builder/bin/pip wheel --no-build-isolation --no-deps --no-index --wheel-dir dist . \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python install --no-compile \
        --no-deps --no-index dist/*.whl \
    && /opt/builder/bin/pip --python /opt/bigfleet-azure/bin/python uninstall --yes pip \
    && /opt/builder/bin/cyclonedx-py environment /opt/bigfleet-azure/bin/python \
        --pyproject pyproject.toml --mc-type application --spec-version 1.6 --output-reproducible \
        --validate --output-file /opt/bigfleet-azure/sbom.cdx.json \
    && /opt/bigfleet-azure/bin/python -m compileall -q -f -j 0 \
        --invalidation-mode unchecked-hash /opt/bigfleet-azure/lib \
    && find /opt/bigfleet-azure/bin -type f ! -name bigfleet-azure -delete \
    && rm -r /opt/bigfleet-azure/include /opt/bigfleet-azure/.gitignore \
    && ln -sf "${BASE_PYTHON}" /opt/bigfleet-azure/bin/python3 \
    && sed -i "s|^home = .*|home = ${BASE_PYTHON%/*}|; /^executable/d; /^command/d" \
        /opt/bigfleet-azure/pyvenv.cfg
COPY scripts/finish_image.py ./


FROM ${BASE_IMAGE}

ARG BASE_IMAGE
LABEL org.opencontainers.image.title="bigfleet-azure" \
      org.opencontainers.image.description="Azure capacity provider for the BigFleet fleet autoscaler" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

USER 0:0
COPY --from=build /opt/bigfleet-azure /opt/bigfleet-azure
# Without a shell there is only the form that starts a program.
RUN --mount=type=bind,from=build,source=/build/finish_image.py,target=/run/finish_image.py \
    ["/opt/bigfleet-azure/bin/python", "/run/finish_image.py"]

ENV PATH=/opt/bigfleet-azure/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

USER 65532:65532
WORKDIR /

# gRPC, then HTTP (metrics, health, readiness).
EXPOSE 9000 9090

ENTRYPOINT ["/opt/bigfleet-azure/bin/python", "-m", "bigfleet_azure"]
