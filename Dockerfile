# PostgreSQL 18 with the extension, and the worker beside it in the same container: they share memory, and both ends of
# their socket check that the other runs under the same account.
#
#   docker build -t dana .
#   docker run --name dana -e POSTGRES_PASSWORD=secret -p 5432:5432 dana
#
# Another major version, from 14 on: docker build --build-arg PG_MAJOR=16 -t dana .

ARG PG_MAJOR=18
FROM postgres:${PG_MAJOR}-bookworm AS build
# the versions of packages are those of the base image's release
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make "postgresql-server-dev-$PG_MAJOR" python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY dana dana
COPY dsl dsl
COPY hwgen hwgen
# shares headers with dana and hwgen, and the version with the packages
COPY pyproject.toml ./
COPY pg_extension pg_extension
RUN make -C pg_extension install PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" DESTDIR=/image
COPY setup.py README.md LICENSE ./
RUN python3 -m venv /opt/dana && /opt/dana/bin/pip install --no-cache-dir '.[rtl]'

FROM postgres:${PG_MAJOR}-bookworm
# g++ and make: the machine 'rtl' compiles the generated hardware's model where it runs
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /image /
COPY --from=build /opt/dana /opt/dana
# the sample becomes postgresql.conf of every data directory that the base image's entry point makes
RUN echo "dana.socket_path = '/run/dana/worker.sock'" >> /usr/share/postgresql/postgresql.conf.sample \
 && if [ "$PG_MAJOR" -ge 18 ]; then echo "io_method = sync" >> /usr/share/postgresql/postgresql.conf.sample; fi \
 && echo "CREATE EXTENSION dana;" > /docker-entrypoint-initdb.d/dana.sql \
 && install -d -m 0700 -o postgres -g postgres /run/dana \
 && printf '%s\n' '#!/bin/bash' \
      'while :; do gosu postgres /opt/dana/bin/dana worker --socket /run/dana/worker.sock; sleep 1; done &' \
      'exec docker-entrypoint.sh "$@"' > /usr/local/bin/dana-entrypoint \
 && printf '%s\n' '#!/bin/sh' \
      'pg_isready --quiet --host 127.0.0.1 --username postgres || exit 1' \
      'exec gosu postgres /opt/dana/bin/python -c "from socket import *; socket(AF_UNIX).connect(\"/run/dana/worker.sock\")"' \
      > /usr/local/bin/dana-healthy \
 && chmod 0755 /usr/local/bin/dana-entrypoint /usr/local/bin/dana-healthy
# one place for all versions; before 18 the base image has another
ENV PGDATA=/var/lib/postgresql/${PG_MAJOR}/docker XDG_CACHE_HOME=/var/lib/postgresql/.cache
VOLUME /var/lib/postgresql
# the server, and the worker, which forks a session that ends at once
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["dana-healthy"]
ENTRYPOINT ["dana-entrypoint"]
CMD ["postgres"]
