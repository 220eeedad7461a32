# The server itself, for docker-compose.yml. Its name keeps it from being a container type: those are the folders here
# with a file named exactly `Dockerfile`. Built from the root of the checkout. What a Linux checkout has installed
# already (node_modules, .tools) comes along and is used, so that this also builds where no registry can be reached.
ARG BASE=node:24-bookworm-slim
FROM ${BASE}

USER root
WORKDIR /opt/oubliette
# First what changes seldom. The lock file is there only because COPY wants one source that surely exists.
COPY package-lock.json .tool[s] .tools/
COPY package-lock.json node_module[s] node_modules/
COPY package.json package-lock.json .npmrc oubliette ./
COPY images images
COPY cmd cmd
COPY internal internal
COPY packages packages
RUN ./oubliette --version

# An engine is given from outside; named, so that a missing one is reported and not installed in here.
ENV OUBLIETTE_ADDRESS=0.0.0.0:8080 \
    DOCKER_HOST=unix:///var/run/docker.sock
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --start-period=120s CMD ["/opt/oubliette/oubliette", "status"]
ENTRYPOINT ["/opt/oubliette/oubliette"]
CMD ["up"]
