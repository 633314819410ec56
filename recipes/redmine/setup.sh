#!/bin/sh
# Installs the site inside its own root filesystem: run as root there, without a network.
# Leaves the database cleanly shut down.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export LANG=C.UTF-8 HOME=/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export RAILS_ENV=production REDMINE_LANG=en SCHEMA=/dev/null BUNDLE_SILENCE_ROOT_WARNING=1

say() { echo "redmine: $*"; }
as() { user=$1; shift; setpriv --reuid="$user" --regid="$user" --init-groups "$@"; }

data=/var/lib/postgresql/main
programs=$(echo /usr/lib/postgresql/[0-9]*/bin)

say "creating the database"
# Debian's own cluster lies in a directory named after the version.
rm -rf /var/lib/postgresql/* /etc/postgresql/[0-9]*
ln -sf "$programs/postgres" /usr/local/bin/postgres
# /run is part of the image: nothing creates this at run time.
install -d -o postgres -g postgres -m 755 /run/postgresql
install -d -o postgres -g postgres -m 700 "$data"
cd /
as postgres "$programs/initdb" -D "$data" -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 \
    --wal-segsize=1 --no-sync --no-instructions >/dev/null
# A small max_wal_size keeps the log, which every instance clones, at a few MB.
as postgres "$programs/pg_ctl" -D "$data" -o '-c config_file=/etc/postgresql/redmine.conf -c max_wal_size=2MB' \
    -l /tmp/postgresql.log -w start >/dev/null || { cat /tmp/postgresql.log; exit 1; }
sql() { psql -h /run/postgresql -U postgres -v ON_ERROR_STOP=1 -q -d "$1"; }
sql postgres <<'SQL'
CREATE ROLE redmine LOGIN;
CREATE DATABASE redmine OWNER redmine;
SQL

say "resolving the gems"
cd /usr/share/redmine
bundle install --local --quiet
chown -R www-data:www-data /var/lib/redmine /var/cache/redmine /var/log/redmine

say "installing Redmine"
as www-data bundle exec rake db:migrate >/tmp/migrate.log || { cat /tmp/migrate.log; exit 1; }
as www-data bundle exec rake redmine:load_default_data
as www-data bundle exec rails runner "$here/content.rb"

say "recording how it boots, and visiting the pages once, which compiles them into the caches"
install -d -o www-data -g www-data -m 755 /var/lib/redmine/boot
as www-data bundle exec ruby "$here/record_boot.rb" /var/lib/redmine/boot
as www-data ruby -r/usr/local/lib/redmine/boot \
    -e 'Rails.application.config.eager_load_namespaces.each(&:eager_load!); Mail.eager_autoload!'
setpriv --reuid=www-data --regid=www-data --init-groups --inh-caps=+net_bind_service --ambient-caps=+net_bind_service \
    ruby /usr/local/lib/redmine/server.rb >/tmp/server.log 2>&1 &
server=$!
ruby "$here/visit.rb" || { cat /tmp/server.log; exit 1; }
kill -INT "$server"
wait "$server"

say "shutting the database down"
# Only CREATE DATABASE needs these, and they are two thirds of the files that every instance clones.
sql redmine <<'SQL'
-- The visit's traces.
DELETE FROM tokens;
UPDATE users SET last_login_on = NULL;
UPDATE pg_database SET datistemplate = false;
DROP DATABASE postgres;
DROP DATABASE template0;
DROP DATABASE template1;
VACUUM (FREEZE, ANALYZE);
CHECKPOINT;
SQL
as postgres "$programs/pg_ctl" -D "$data" -m fast -w stop >/dev/null
"$programs/pg_controldata" "$data" | grep -q 'cluster state: *shut down$' || { say "PostgreSQL was not shut down cleanly"; exit 1; }

# What nothing runs: the compiler behind the database's JIT, which is off, is a quarter of the root.
rm -rf /usr/lib/*/libLLVM* /usr/lib/*/libz3.so* /usr/lib/llvm-* "${programs%/bin}"/lib/bitcode "${programs%/bin}"/lib/llvmjit*
rm -rf /var/log/redmine/default/*.log /var/cache/redmine/default/tmp/* /tmp/*
