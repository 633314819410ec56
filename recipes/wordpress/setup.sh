#!/bin/sh
# Installs the site inside its own root filesystem: run as root there, without a network.
# Leaves every service stopped and the database cleanly shut down.
set -eu
here=$(dirname "$0")
export LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() { echo "wordpress: $*"; }

# mariadb-server-core brings the programs only; the user comes with the full package.
grep -q '^mysql:' /etc/group || echo 'mysql:x:998:' >>/etc/group
grep -q '^mysql:' /etc/passwd || echo 'mysql:x:998:998:MariaDB:/nonexistent:/usr/sbin/nologin' >>/etc/passwd

# /run is part of the image: nothing creates these at run time.
install -d -o mysql -g mysql -m 755 /run/mysqld
install -d -o mysql -g mysql -m 700 /var/lib/mysql
install -d -o www-data -g www-data -m 755 /run/php
install -d -o www-data -g www-data -m 700 /var/cache/php-opcache
chown -R www-data:www-data /var/lib/wordpress/wp-content/uploads

# Debian's names carry PHP's version.
ln -sf "$(echo /usr/sbin/php-fpm[0-9]*)" /usr/local/sbin/php-fpm
for directory in /etc/php/[0-9]*/fpm/conf.d; do
    ln -sf /etc/php/site.ini "$directory/99-site.ini"
    # WordPress uses none of these, and each is mapped and linked at every start.
    for module in calendar ffi ftp gettext pdo pdo_mysql phar readline shmop sockets sysvmsg sysvsem sysvshm; do
        rm -f "$directory"/[0-9]*-"$module.ini"
    done
done

say "creating the database"
mariadb-install-db --defaults-file=/etc/mysql/site.cnf --user=mysql --skip-test-db \
    --auth-root-authentication-method=socket --force >/tmp/install-db.log || { cat /tmp/install-db.log; exit 1; }
rm /tmp/install-db.log
mariadbd --defaults-file=/etc/mysql/site.cnf --user=mysql &
database=$!
tries=300
until mariadb-admin ping >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { say "MariaDB did not start within 30 s"; exit 1; }
    sleep 0.1
done
# The sys schema is 100 views over the performance schema, which is off: 100 files less to clone.
mariadb <<'SQL'
DROP DATABASE sys;
-- mariadb-install-db names the host that the image was built on.
DELETE FROM mysql.proxies_priv WHERE Host <> 'localhost';
CREATE DATABASE wordpress CHARACTER SET utf8mb4;
CREATE USER wordpress@localhost IDENTIFIED BY 'wordpress';
GRANT ALL ON wordpress.* TO wordpress@localhost;
SQL

say "installing WordPress"
php -d memory_limit=256M "$here/install.php"

say "visiting the pages once, which compiles them into the image's opcode cache"
php-fpm --nodaemonize --force-stderr --fpm-config /etc/php/site-fpm.conf &
php=$!
nginx -e stderr -c /etc/nginx/site.conf &
web=$!
php "$here/visit.php"
kill -QUIT "$php" "$web"
wait "$php" "$web"

say "shutting the database down"
mariadb wordpress >/dev/null <<'SQL'
-- What the visits left: drafts, the administrator's session, cached values with a time.
DELETE FROM wp_posts WHERE post_status = 'auto-draft';
DELETE FROM wp_usermeta WHERE meta_key = 'session_tokens';
DELETE FROM wp_options WHERE option_name LIKE '%\_transient\_%';
ANALYZE TABLE wp_comments, wp_options, wp_posts, wp_term_relationships, wp_usermeta, wp_users;
SET GLOBAL innodb_fast_shutdown = 0;
SHUTDOWN;
SQL
wait "$database"

# What nothing runs any more; the client tools alone are 75 MB (mariadb(1) itself stays).
find /usr/bin \( -name 'mariadb-*' -o -name perror -o -name innochecksum -o -name replace -o -name my_print_defaults \
    -o -name 'resolve*ip' -o -name resolve_stack_dump -o -name innotop \) -delete
# Perl's library is there for the client tools' sake; dpkg's own scripts need perl-base only.
rm -rf /usr/share/perl /usr/share/perl5 /usr/lib/*/perl /usr/lib/*/libperl.so.*
find /usr/bin /usr/sbin -xtype l -delete
