#!/bin/sh
# Build the shop's database and pictures, and compile its code. Runs as root inside the new root filesystem.
set -eu

shop=/srv/shop
python=/opt/venv/bin/python3

mkdir -p /proc /sys /dev /run /tmp /var/tmp /var/log "$shop/data"
chmod 1777 /tmp /var/tmp

# What is not compiled here is compiled by every cold start. By hash, since copying a base may change the times.
"$python" -ES -m compileall -qf --invalidation-mode checked-hash "$shop"
"$python" -ES "$shop/build.py"
chown -R shop:shop "$shop/data"
