<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'wordpress');
define('DB_HOST', 'localhost:/run/mysqld/mysqld.sock');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
define('WP_HOME', 'http://wordpress.test');
define('WP_SITEURL', 'http://wordpress.test');
define('WP_ALLOW_MULTISITE', false);

// Fixed on purpose: every build and every instance accepts the same cookies.
define('AUTH_KEY', 'webserv-rt auth key');
define('SECURE_AUTH_KEY', 'webserv-rt secure auth key');
define('LOGGED_IN_KEY', 'webserv-rt logged in key');
define('NONCE_KEY', 'webserv-rt nonce key');
define('AUTH_SALT', 'webserv-rt auth salt');
define('SECURE_AUTH_SALT', 'webserv-rt secure auth salt');
define('LOGGED_IN_SALT', 'webserv-rt logged in salt');
define('NONCE_SALT', 'webserv-rt nonce salt');

// Nothing leaves an instance, and nothing changes by itself.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('FS_METHOD', 'direct');
