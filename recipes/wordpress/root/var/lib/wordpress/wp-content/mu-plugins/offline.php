<?php
/*
Plugin Name: Offline
Description: Switches off what would ask servers that an instance cannot reach.
*/

// Update checks: each admin page would otherwise try, fail and warn.
add_action('init', function () {
    remove_action('admin_init', '_maybe_update_core');
    remove_action('admin_init', '_maybe_update_plugins');
    remove_action('admin_init', '_maybe_update_themes');
    remove_action('init', 'wp_schedule_update_checks');
}, 1);
add_filter('pre_site_transient_update_core', fn() => (object) ['updates' => [], 'version_checked' => get_bloginfo('version')]);

// The list of languages on the settings page.
add_filter('translations_api', fn() => ['translations' => []]);

// The dashboard's feed of events and news, and the browser and PHP version checks.
add_action('wp_dashboard_setup', function () {
    remove_meta_box('dashboard_primary', 'dashboard', 'side');
});
add_filter('pre_site_transient_php_check_' . md5(phpversion()), fn() => ['is_acceptable' => true]);
if (isset($_SERVER['HTTP_USER_AGENT'])) {
    add_filter('pre_site_transient_browser_' . md5($_SERVER['HTTP_USER_AGENT']), fn() => ['upgrade' => false, 'insecure' => false]);
}

// Emoji images come from another server; browsers draw their own.
add_filter('emoji_svg_url', '__return_false');
remove_action('wp_head', 'print_emoji_detection_script', 7);
remove_action('admin_print_scripts', 'print_emoji_detection_script');
