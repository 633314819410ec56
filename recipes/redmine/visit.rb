# frozen_string_literal: true

# Visit the main pages as a guest and as the administrator; fail unless each answers 200.

require "net/http"

PAGES = %w[/ /login /projects /issues /issues/1 /issues/5.pdf /issues.csv /projects/storefront /projects/storefront/wiki
           /projects/storefront/wiki/Getting_started /projects/storefront/roadmap /projects/storefront/activity
           /projects/storefront/boards /projects/storefront/issues/gantt /news /search?q=cart /users/5].freeze
ADMIN_PAGES = %w[/my/page /my/account /admin /admin/projects /users /settings /issues/1 /issues/1/edit /projects/new
                 /projects/storefront/issues/new /projects/storefront/settings /projects/storefront/time_entries].freeze

# The site as a browser sees it: one connection, one session cookie.
class Browser
  def initialize(host, port, patience_s: 60)
    @host = host
    @cookie = ""
    @deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience_s
    @http = connect(port)
  end

  def visit(path) = ask(Net::HTTP::Get.new(path), 200)

  def log_in(user, password)
    token = visit("/login")[/name="authenticity_token" value="([^"]+)"/, 1]
    form = Net::HTTP::Post.new("/login")
    form.set_form_data(username: user, password: password, authenticity_token: token)
    ask(form, 302)
  end

  private

  def connect(port)
    Net::HTTP.start("127.0.0.1", port)
  rescue Errno::ECONNREFUSED
    raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > @deadline

    sleep 0.1
    retry
  end

  def ask(request, status)
    request["Host"] = @host
    request["Cookie"] = @cookie
    response = @http.request(request)
    @cookie = response["Set-Cookie"][/[^;]+/] if response["Set-Cookie"]
    return response.body if response.code.to_i == status

    abort "#{request.method} #{request.path}: status #{response.code}, not #{status}\n#{response.body.to_s[0, 2000]}"
  end
end

browser = Browser.new("redmine.test", 80)
PAGES.each { |path| browser.visit(path) }
# Its address carries a time or, from Redmine 6 on, a digest.
browser.visit(browser.visit("/")[/href="([^"]*application[^"]*\.css[^"]*)"/, 1])
browser.log_in("admin", "adminadmin")
ADMIN_PAGES.each { |path| browser.visit(path) }
