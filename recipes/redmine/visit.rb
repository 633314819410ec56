# frozen_string_literal: true

# Visit the main pages as a guest and as the administrator, in the way the server runs; fail unless each answers 200.
# What the pages load is compiled into the caches on the way. Leaves no trace in the database.

require "/usr/local/lib/redmine/boot"

PAGES = %w[/ /login /projects /issues /issues/1 /issues/5.pdf /issues.csv /projects/storefront /projects/storefront/wiki
           /projects/storefront/wiki/Getting_started /projects/storefront/roadmap /projects/storefront/activity
           /projects/storefront/boards /projects/storefront/issues/gantt /news /search?q=cart /users/5
           /stylesheets/application.css].freeze
ADMIN_PAGES = %w[/my/page /my/account /admin /admin/projects /users /settings /issues/1 /issues/1/edit /projects/new
                 /projects/storefront/issues/new /projects/storefront/settings /projects/storefront/time_entries].freeze

Rails.application.eager_load!
BROWSER = ActionDispatch::Integration::Session.new(Rails.application)
BROWSER.host!("redmine.test")

def visit(path)
  status = BROWSER.get(path)
  abort "GET #{path}: status #{status}\n#{BROWSER.response.body[0, 2000]}" unless status == 200
end

def log_in
  visit("/login")
  token = BROWSER.response.body[/name="authenticity_token" value="([^"]+)"/, 1]
  status = BROWSER.post("/login", params: { username: "admin", password: "adminadmin", authenticity_token: token })
  abort "POST /login: status #{status}" unless status == 302
end

PAGES.each { |path| visit(path) }
log_in
ADMIN_PAGES.each { |path| visit(path) }

Token.delete_all
User.update_all(last_login_on: nil)
