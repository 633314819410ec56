<?php
/*
 * A page cache for guests, as public WordPress sites have: rendering the front page takes 30 ms of processor
 * time, this 3. WordPress loads it first of all (WP_CACHE).
 *
 * A stored page is served only while the database has not changed: it carries a stamp, read before it was
 * rendered, of how many rows MariaDB has written since it started, whoever wrote them. It is kept in the
 * instance's own layer, and none is part of the image.
 */
final class Guest_Pages
{
    private const DIRECTORY = '/var/cache/guest-pages';
    private const COUNTERS = "'HANDLER_WRITE', 'HANDLER_UPDATE', 'HANDLER_DELETE', 'COM_TRUNCATE', 'COM_DROP_TABLE', 'COM_RENAME_TABLE'";

    public static function serve(): void
    {
        if (!self::is_for_guests() || ($stamp = self::stamp()) === null) {
            return;
        }
        $path = self::DIRECTORY . '/' . sha1($_SERVER['REQUEST_URI']);
        $stored = @file_get_contents($path);
        if ($stored !== false && str_starts_with($stored, "$stamp\n")) {
            [$head, $page] = explode("\n\n", $stored, 2);
            foreach (array_slice(explode("\n", $head), 1) as $line) {
                header($line, false);
            }
            header('X-Guest-Page: stored');
            exit($page);
        }
        ob_start(fn(string $page, int $phase) => self::store($path, $stamp, $page, $phase));
    }

    private static function is_for_guests(): bool
    {
        if ($_SERVER['REQUEST_METHOD'] !== 'GET' || ($_SERVER['QUERY_STRING'] ?? null) !== '' || isset($_SERVER['HTTP_AUTHORIZATION'])) {
            return false;  // there is no query string at all on the command line
        }
        $own = preg_grep('/^(wordpress|wp-|comment_author)/', array_keys($_COOKIE));
        return $own === [] && $_SERVER['HTTP_HOST'] === parse_url(WP_HOME, PHP_URL_HOST);
    }

    /** Which start of MariaDB this is, and what has been written since; null while it is not there. */
    private static function stamp(): ?string
    {
        $socket = explode(':', DB_HOST)[1];
        if (!file_exists($socket)) {
            return null;
        }
        try {
            $database = new mysqli('localhost', DB_USER, DB_PASSWORD, DB_NAME, 0, $socket);
            $counters = $database->query('SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN (' . self::COUNTERS . ')');
            return filectime($socket) . '-' . fileinode($socket) . '-' . $counters->fetch_row()[0];
        } catch (mysqli_sql_exception) {
            return null;
        }
    }

    private static function store(string $path, string $stamp, string $page, int $phase): string
    {
        $is_whole = ($phase & PHP_OUTPUT_HANDLER_START) && ($phase & PHP_OUTPUT_HANDLER_FINAL);
        $is_html = preg_grep('#^Content-Type: text/html#i', headers_list()) !== [];
        if ($is_whole && $is_html && http_response_code() === 200 && str_contains($page, '</html>')) {
            $draft = $path . '.' . getmypid();
            $head = implode("\n", [$stamp, ...headers_list()]);
            if (@file_put_contents($draft, "$head\n\n$page") !== false) {
                rename($draft, $path);
            }
        }
        return $page;
    }
}

Guest_Pages::serve();
