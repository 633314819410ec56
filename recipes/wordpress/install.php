<?php
/*
 * Installs WordPress with its own installer and fills it: 25 posts, 25 users, 18 comments, 4 pages.
 * Everything is made from fixed lists and dates, so that two builds show the same site.
 */

const N_POSTS = 25;
const N_SUBSCRIBERS = 24;  // and the administrator
const N_COMMENTS = 18;
const FIRST_DAY = '2024-03-01 09:00:00';

const FIRST_NAMES = ['Ada', 'Bruno', 'Clara', 'Davit', 'Elena', 'Femi', 'Greta', 'Hugo', 'Ines', 'Jonas', 'Kaori', 'Liam',
    'Mina', 'Noah', 'Olga', 'Pablo', 'Quinn', 'Rosa', 'Sami', 'Tilda', 'Umar', 'Vera', 'Wout', 'Yara'];
const LAST_NAMES = ['Keller', 'Okafor', 'Lindqvist', 'Moreau', 'Tanaka', 'Silva', 'Novak', 'Haddad'];
const SUBJECTS = ['tide table', 'harbour wall', 'ferry timetable', 'fish market', 'lighthouse', 'boat shed', 'sea wall garden',
    'winter storm', 'rope maker', 'night train', 'old cannery', 'bird island', 'pilot boat'];
const TITLES = ['Notes on the %s', 'A morning at the %s', 'What changed about the %s', 'Readers ask: the %s'];
const SENTENCES = [
    'The %s is the first thing that visitors ask about.',
    'Nobody here agrees on when the %s was at its best.',
    'We went back twice, once in rain and once in sun, to look at the %s.',
    'The council has promised to report on the %s before the end of the season.',
    'A reader sent three photographs of the %s from 1962.',
    'There is a bench with a good view of the %s, and it is usually free before nine.',
    'Most of what is written about the %s was copied from one guide book.',
    'If you have a story about the %s, write to us.',
    'It takes twenty minutes on foot from the station to the %s.',
    'The work on the %s will go on until the first frost.',
];
const CATEGORIES = ['Harbour', 'Town', 'People', 'Letters'];
const PAGES = ['About' => 'lighthouse', 'Contact' => 'boat shed', 'Getting here' => 'night train', 'Archive' => 'old cannery'];

define('WP_INSTALLING', true);
define('WP_IMPORTING', true);  // publishing schedules no pings
$_SERVER['HTTP_HOST'] = 'wordpress.test';
$_SERVER['SERVER_PROTOCOL'] = 'HTTP/1.1';
$_SERVER['REQUEST_METHOD'] = 'GET';
$_SERVER['REQUEST_URI'] = '/';

/** Replaces WordPress's own first post, page and comment, which carry today's date. */
function wp_install_defaults(int $user_id): void
{
    update_option('show_on_front', 'posts');
    wp_insert_term('Uncategorized', 'category', ['slug' => 'uncategorized']);
    update_option('default_category', get_term_by('slug', 'uncategorized', 'category')->term_id);
}

/** Replaces the mail to the administrator: there is nowhere to send it. */
function wp_new_blog_notification(string $title, string $url, int $user_id, string $password): void
{
}

require '/usr/share/wordpress/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';

/** A portable hash with a salt taken from the login: the same in every build; accepted by every WordPress. */
function set_password(int $user_id, string $login, string $password): void
{
    global $wpdb;
    require_once ABSPATH . WPINC . '/class-phpass.php';
    $hash = (new PasswordHash(8, true))->crypt_private($password, '$P$B' . substr(md5($login), 0, 8));
    $wpdb->update($wpdb->users, ['user_pass' => $hash, 'user_registered' => FIRST_DAY], ['ID' => $user_id]);
}

function paragraphs(string $subject, int $seed, int $n_paragraphs): string
{
    $blocks = [];
    for ($paragraph = 0; $paragraph < $n_paragraphs; $paragraph++) {
        $sentences = [];
        for ($i = 0; $i < 4; $i++) {
            $sentences[] = sprintf(SENTENCES[($seed + 3 * $paragraph + 7 * $i) % count(SENTENCES)], $subject);
        }
        $blocks[] = "<!-- wp:paragraph -->\n<p>" . implode(' ', $sentences) . "</p>\n<!-- /wp:paragraph -->";
    }
    return implode("\n\n", $blocks);
}

function day(int $n_days, int $hours = 0): string
{
    return gmdate('Y-m-d H:i:s', strtotime(FIRST_DAY . ' UTC') + 86400 * $n_days + 3600 * $hours);
}

/** wp_insert_post and its kind return a WP_Error where they were asked to. */
function unless_error(int|array|WP_Error $result): int|array
{
    if ($result instanceof WP_Error) {
        throw new RuntimeException($result->get_error_message());
    }
    return $result;
}

function add_subscriber(int $number): int
{
    $first = FIRST_NAMES[$number];
    $last = LAST_NAMES[$number % count(LAST_NAMES)];
    $login = strtolower($first);
    $user_id = unless_error(wp_insert_user([
        'user_login' => $login, 'user_pass' => 'unused', 'user_email' => "$login@wordpress.test",
        'first_name' => $first, 'last_name' => $last, 'display_name' => "$first $last",
        'role' => ['subscriber', 'contributor', 'author', 'editor'][$number % 4],
    ]));
    set_password($user_id, $login, $login);
    return $user_id;
}

function add_post(int $number, array $category_ids, array $author_ids): int
{
    $subject = SUBJECTS[$number % count(SUBJECTS)];
    return unless_error(wp_insert_post([
        'post_title' => sprintf(TITLES[$number % count(TITLES)], $subject),
        'post_content' => paragraphs($subject, $number, 3 + $number % 4),
        'post_status' => 'publish', 'post_author' => $author_ids[$number % count($author_ids)],
        'post_date' => day(2 * $number), 'post_date_gmt' => day(2 * $number),
        'post_category' => [$category_ids[$number % count($category_ids)]],
        'tags_input' => [$subject, $number % 2 ? 'walks' : 'history'],
    ], true));
}

function add_page(string $title, string $subject, int $number): void
{
    unless_error(wp_insert_post([
        'post_type' => 'page', 'post_title' => $title, 'post_status' => 'publish', 'post_author' => 1,
        'post_content' => paragraphs($subject, $number, 3), 'menu_order' => $number,
        'post_date' => day(0), 'post_date_gmt' => day(0),
    ], true));
}

function add_comment(int $number, int $post_id, int $post_number): void
{
    $first = FIRST_NAMES[$number];
    wp_insert_comment([
        'comment_post_ID' => $post_id, 'comment_author' => $first . ' ' . LAST_NAMES[$number % count(LAST_NAMES)],
        'comment_author_email' => strtolower($first) . '@wordpress.test', 'comment_approved' => $number % 6 == 5 ? 0 : 1,
        'comment_content' => sprintf(SENTENCES[$number % count(SENTENCES)], SUBJECTS[$post_number % count(SUBJECTS)]),
        'comment_date' => day(2 * $post_number, 5), 'comment_date_gmt' => day(2 * $post_number, 5),
    ]);
}

wp_install('Harbour Notes', 'admin', 'admin@wordpress.test', true, '', 'admin');
set_password(1, 'admin', 'admin');
update_option('blogdescription', 'A small paper for a small harbour');
update_option('show_avatars', 0);  // Gravatar cannot be reached
update_option('admin_email_lifespan', PHP_INT_MAX);  // else a page asking to confirm the address comes first
update_option('permalink_structure', '/%postname%/');
switch_theme('twentytwentythree');

// Kinds of content and their addresses were registered before the installer had made the tables.
create_initial_taxonomies();
create_initial_post_types();

$category_ids = array_map(fn($name) => unless_error(wp_insert_term($name, 'category'))['term_id'], CATEGORIES);
$author_ids = [1];
for ($number = 0; $number < N_SUBSCRIBERS; $number++) {
    $user_id = add_subscriber($number);
    if ($number % 4 >= 2) {
        $author_ids[] = $user_id;
    }
}
$post_ids = [];
for ($number = 0; $number < N_POSTS; $number++) {
    $post_ids[] = add_post($number, $category_ids, $author_ids);
}
foreach (array_keys(PAGES) as $number => $title) {
    add_page($title, PAGES[$title], $number);
}
for ($number = 0; $number < N_COMMENTS; $number++) {
    $post_number = N_POSTS - 1 - intdiv($number, 2);
    add_comment($number, $post_ids[$post_number], $post_number);
}
flush_rewrite_rules(false);
