# packhouse in a slim image. It writes to two volumes and /tmp only, so its root file system may be read-only:
#
#   docker build -t packhouse .
#   docker run --rm packhouse token me --repos '*/*' --verbs admin     # prints the secret and its record
#   echo '[RECORD]' > tokens.json
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -p 127.0.0.1:8750:8750 \
#     -v packhouse:/var/lib/packhouse -v ./tokens.json:/run/secrets/tokens.json:ro \
#     -e PACKHOUSE_TOKENS_FILE=/run/secrets/tokens.json packhouse
#
# docs/operations.md tells more. Both stages take the same base, by its digest; another mirror goes into BASE.

ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${BASE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ONLY_BINARY=:all:

WORKDIR /build

# What changes seldom comes first. Packages go into an environment without pip, which is all that is kept of this stage.
COPY requirements-runtime.lock ./
RUN python3 -m venv --without-pip /opt/packhouse \
    && python3 -m pip --python /opt/packhouse/bin/python install --require-hashes -r requirements-runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY storage storage
COPY pack pack
RUN python3 -m pip --python /opt/packhouse/bin/python install --no-deps --no-build-isolation . \
    && python3 -m pip --python /opt/packhouse/bin/python uninstall --yes setuptools


FROM ${BASE}

LABEL org.opencontainers.image.title="packhouse" \
      org.opencontainers.image.description="Git repositories in an object store, read over HTTP" \
      org.opencontainers.image.licenses="MIT"

ENV PATH=/opt/packhouse/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PACKHOUSE_STORE=file:///var/lib/packhouse/store \
    PACKHOUSE_CACHE_DIR=/var/cache/packhouse

# A fresh volume takes over the owner of the folder that it covers.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin packhouse \
    && install -d -o packhouse -g packhouse \
        /var/lib/packhouse /var/cache/packhouse /run/packhouse/keys /run/packhouse/admin

COPY --from=build /opt/packhouse /opt/packhouse

USER 10001:10001
WORKDIR /var/lib/packhouse
VOLUME ["/var/lib/packhouse", "/var/cache/packhouse"]
EXPOSE 8750
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('PACKHOUSE_PORT', 8750)), timeout=4); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 200)"]

# Without a tokens file `serve` refuses to listen on anything but loopback.
ENTRYPOINT ["packhouse"]
CMD ["serve", "--host", "0.0.0.0"]
