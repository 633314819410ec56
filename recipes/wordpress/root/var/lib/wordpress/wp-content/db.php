<?php
/*
 * Loaded by WordPress right before it connects to the database. All services start at once and PHP is
 * ready first: this waits for MariaDB instead of failing. Once MariaDB listens it costs one stat().
 */
(function (): void {
    $socket = explode(':', DB_HOST)[1];
    for ($tries = 0; $tries < 20000 && !file_exists($socket); $tries++) {
        usleep(500);
    }
})();
