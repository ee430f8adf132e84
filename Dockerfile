# A broker, as a user that is not root. Settings are KAFKA_* variables, or a server.properties at ONCELOG_CONFIG_FILE:
#
#   docker build -t oncelog .
#   docker run --rm --init -p 127.0.0.1:9092:9092 -v oncelog-data:/var/lib/kafka/data oncelog
#
# What the entry point adds to them is in broker/container.py.

ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY oncelog oncelog
COPY protocol protocol
COPY coordinator coordinator
COPY broker broker
COPY clients clients
COPY spark_connector spark_connector
RUN python3 -m venv /build \
 && /build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python3 -m venv --without-pip /opt/oncelog \
 && /build/bin/pip --python /opt/oncelog/bin/python install --no-cache-dir /wheels/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/oncelog /opt/oncelog
RUN groupadd --gid 1000 oncelog \
 && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/kafka --shell /usr/sbin/nologin oncelog \
 && install -d -o 1000 -g 1000 /var/lib/kafka /var/lib/kafka/data
ENV PATH=/opt/oncelog/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ONCELOG_DATA_DIR=/var/lib/kafka/data \
    ONCELOG_CONFIG_FILE=/mnt/shared/config/server.properties
USER 1000:1000
WORKDIR /var/lib/kafka
EXPOSE 9092
VOLUME /var/lib/kafka/data
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 \
    CMD ["python", "-P", "-m", "oncelog.broker.container", "health", "--ready"]
ENTRYPOINT ["python", "-P", "-m", "oncelog.broker.container"]
