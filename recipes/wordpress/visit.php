<?php
/*
 * Visits the site's main pages as a guest and as the administrator, and fails unless each answers 200.
 */

const PAGES = ['/', '/about/', '/notes-on-the-tide-table/', '/category/town/', '/?s=harbour', '/wp-login.php'];
const ADMIN_PAGES = ['index.php', 'edit.php', 'edit.php?post_type=page', 'edit-comments.php', 'users.php', 'post-new.php',
    'upload.php', 'profile.php', 'options-general.php', 'plugins.php', 'themes.php'];

/** Sends one request on a connection of its own; returns the status, the headers and the body. */
function request(string $method, string $path, string $cookies = '', string $form = ''): array
{
    $stream = stream_socket_client('tcp://127.0.0.1:80', $code, $message, 30);
    stream_set_timeout($stream, 60);
    fwrite($stream, "$method $path HTTP/1.0\r\nHost: wordpress.test\r\nCookie: $cookies\r\n"
        . "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: " . strlen($form) . "\r\n\r\n$form");
    [$head, $body] = explode("\r\n\r\n", stream_get_contents($stream), 2);
    return [(int) explode(' ', $head)[1], $head, $body];
}

function visit(string $path, string $cookies = ''): void
{
    [$status, , $body] = request('GET', $path, $cookies);
    if ($status !== 200 || !str_contains($body, '</html>')) {
        fwrite(STDERR, "GET $path: status $status\n" . substr($body, 0, 2000) . "\n");
        exit(1);
    }
}

function log_in(): string
{
    [$status, $head] = request('POST', '/wp-login.php', 'wordpress_test_cookie=WP%20Cookie%20check',
        http_build_query(['log' => 'admin', 'pwd' => 'admin', 'testcookie' => 1]));
    if ($status !== 302) {
        fwrite(STDERR, "logging in as admin: status $status\n");
        exit(1);
    }
    preg_match_all('/^Set-Cookie: ([^;]+)/mi', $head, $cookies);
    return implode('; ', $cookies[1]);
}

/** Waits until nginx listens and php-fpm behind it (502 until then). */
function wait_for_server(): void
{
    $deadline = microtime(true) + 30;
    while (!@fsockopen('127.0.0.1', 80) || request('GET', '/wp-includes/version.php')[0] === 502) {
        if (microtime(true) > $deadline) {
            fwrite(STDERR, "nginx and php-fpm did not answer within 30 s\n");
            exit(1);
        }
        usleep(50000);
    }
}

wait_for_server();
array_map('visit', PAGES);
$cookies = log_in();
foreach (ADMIN_PAGES as $page) {
    visit("/wp-admin/$page", $cookies);
}
