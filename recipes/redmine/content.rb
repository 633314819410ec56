# frozen_string_literal: true

# Fill a fresh Redmine: 3 projects, 8 people, 60 issues with their history, wikis, forums, news, attachments.
# Runs under `rails runner`; the clock stands where the story needs it, so that every build tells the same one.

require "active_support/testing/time_helpers"

PASSWORD = "userpassword"
ADMIN_PASSWORD = "adminadmin"
START = Time.utc(2025, 3, 3, 9, 0, 0)
MODULES = %w[issue_tracking time_tracking news documents files wiki boards calendar gantt].freeze

PEOPLE = [
  %w[anna Anna Keller Manager], %w[ben Ben Osei Manager], %w[chiara Chiara Rossi Developer],
  %w[daniel Daniel Novak Developer], %w[emeka Emeka Obi Developer], %w[fatima Fatima Haddad Developer],
  %w[greta Greta Lind Reporter], %w[hugo Hugo Martin Reporter]
].freeze

PROJECTS = [
  {
    identifier: "storefront", name: "Storefront", description: "The public web shop: catalogue, cart and checkout.",
    categories: %w[Catalogue Cart Checkout Accounts],
    bugs: ["Cart total is wrong after removing a voucher", "Search finds nothing for names with an apostrophe",
           "Product pictures are stretched in Safari", "Order confirmation shows the wrong delivery date",
           "Guest checkout asks twice for the postal code", "Filter by colour forgets the page number",
           "Password reset link expires after a minute", "Out-of-stock products can be put in the cart",
           "Prices are shown without cents on the wish list", "Footer links open the old imprint"],
    features: ["Remember the last used payment method", "Compare up to three products side by side",
               "Show delivery costs before checkout", "Let customers download their invoices",
               "Offer gift wrapping in the cart", "Add a wish list that can be shared"],
    support: ["How do I cancel a single position of an order?", "Which browsers do we support?",
              "Customer cannot log in with an old account", "Need a list of all vouchers of last year"]
  },
  {
    identifier: "warehouse", name: "Warehouse", description: "Stock keeping, picking and shipping.",
    categories: %w[Stock Picking Shipping Reports],
    bugs: ["Stock is counted twice when a parcel comes back", "Label printer prints an empty page first",
           "Picking list ignores the shelf order", "Barcode scanner drops the leading zero",
           "Night job stops at products without weight", "Export truncates long addresses",
           "Two pickers can be given the same order", "Report for February has 29 days",
           "Negative stock after a cancelled transfer", "Carrier status is never updated for islands"],
    features: ["Pick several orders in one round", "Warn when stock falls below a threshold",
               "Print return labels in advance", "Show the route through the aisles",
               "Book deliveries by scanning the delivery note", "Weekly report by e-mail"],
    support: ["How is a damaged product booked out?", "New colleague needs access to the reports",
              "Scanner 4 does not connect any more", "Which carrier is used for parcels over 30 kg?"]
  },
  {
    identifier: "mobile-app", name: "Mobile App", description: "The shop for phones and tablets.",
    categories: %w[Screens Sync Notifications Payment],
    bugs: ["App closes when the camera is refused", "Notifications arrive twice after an update",
           "Landscape view hides the buy button", "Sync never ends on slow networks",
           "Payment sheet stays open after success", "Dark mode makes prices unreadable",
           "Back button leaves the app from the cart", "Pictures are loaded again on every start",
           "Login is lost after 24 hours", "Search keyboard covers the first result"],
    features: ["Scan a barcode to find a product", "Use the fingerprint to log in", "Keep the cart when offline",
               "Show the parcel on a map", "Larger type for readers who need it", "Pay with a stored card"],
    support: ["Which phones can still run version 2?", "How do testers get the beta?",
              "Store review asks for a privacy text", "Crash reports of one customer"]
  }
].freeze

NOTES = [
  "I can reproduce this on the test system.", "Happens here too, with the same steps.",
  "A fix is on its way; it needs a second pair of eyes.", "The cause is older than the last release.",
  "Asked the customer for a screenshot.", "Deployed to the test system, please try again.",
  "Works for me now, thank you.", "Let us take this into the next release.",
  "I have split off the part that needs a new design.", "Added a test that fails without the change."
].freeze

include ActiveSupport::Testing::TimeHelpers

# Hours of the story since START.
def at(hours) = travel_to(START + hours.hours)

def attach(container, author, filename, content_type, text)
  Attachment.create!(container: container, author: author, filename: filename, content_type: content_type, file: text)
end

def write_page(project, author, title, text, parent: nil)
  page = WikiPage.new(wiki: project.wiki, title: title, parent: parent)
  page.save_with_content(WikiContent.new(page: page, author: author, text: text)) or
    raise "wiki page #{title} of #{project}: #{page.errors.full_messages.join(', ')}"
  page
end

def configure
  # No mail can leave an instance: none is written, neither here nor later.
  Setting.notified_events = []
  Setting.host_name = "redmine.test"
  Setting.app_title = "Harbour Goods Redmine"
  Setting.welcome_text = "Issues, wikis and forums of the harbour goods teams."
  admin = User.find_by!(login: "admin")
  admin.update!(password: ADMIN_PASSWORD, must_change_passwd: false, language: "en", mail: "admin@redmine.test")
  User.current = admin
end

def create_people
  PEOPLE.map do |login, firstname, lastname, role|
    user = User.new(login: login, firstname: firstname, lastname: lastname, mail: "#{login}@redmine.test", language: "en")
    user.password = user.password_confirmation = PASSWORD
    user.save!
    [user, Role.find_by!(name: role)]
  end
end

def create_project(data, members)
  project = Project.create!(name: data[:name], identifier: data[:identifier], description: data[:description],
                            is_public: true, enabled_module_names: MODULES, trackers: Tracker.all)
  members.each { |user, role| Member.create!(project: project, principal: user, roles: [role]) }
  %w[1.0 1.1 2.0].each_with_index do |name, index|
    project.versions.create!(name: name, effective_date: Date.new(2025, 3 + index, 28),
                             status: index.zero? ? "closed" : "open", description: "Release #{name}")
  end
  data[:categories].each_with_index do |name, index|
    project.issue_categories.create!(name: name, assigned_to: members[2 + index].first)
  end
  project.reload
end

def create_issue(project, tracker, subject, users, number)
  issue = Issue.new(project: project, tracker: Tracker.find_by!(name: tracker), author: users[number % users.size],
                    subject: subject, status: IssueStatus.find_by!(name: "New"),
                    priority: IssuePriority.active.to_a[number % 4], start_date: Date.current,
                    category: project.issue_categories.to_a[number % 4], fixed_version: project.versions.open.to_a[number % 2],
                    description: "#{subject}.\n\nSeen in *#{project.name}*. Steps:\n\n# Open the page\n# Do what the title says\n# Watch")
  issue.due_date = Date.current + 14 + number % 10 if number.even?
  issue.estimated_hours = 2 + number % 7 unless tracker == "Support"
  issue.save!
  issue
end

# Give the issue the history that its number calls for: from untouched to closed.
def discuss(id, users, number, hour)
  ["In Progress", "Resolved", "Feedback", "Closed"].first(number % 5).each_with_index do |status, step|
    at(hour + 3 + 20 * step)
    issue = Issue.find(id)
    issue.init_journal(users[(number + step + 1) % users.size], NOTES[(number + step) % NOTES.size])
    issue.status = IssueStatus.find_by!(name: status)
    issue.assigned_to = users[2 + number % 4] if step.zero?
    issue.done_ratio = [30, 90, 80, 100][step]
    issue.save!
  end
end

def create_issues(project, data, users)
  subjects = data.values_at(:bugs, :features, :support).zip(%w[Bug Feature Support])
  subjects = subjects.flat_map { |list, tracker| list.map { |subject| [tracker, subject] } }
  subjects.each_with_index do |(tracker, subject), number|
    hour = 24 * number + project.id
    at(hour)
    issue = create_issue(project, tracker, subject, users, number)
    attach(issue, issue.author, "steps-#{number}.txt", "text/plain", "#{subject}\n\n#{NOTES.join("\n")}\n") if number % 6 == 1
    discuss(issue.id, users, number, hour)
    log_time(issue, users[2 + number % 4], number) if number % 3 == 2
  end
end

def log_time(issue, user, number)
  TimeEntry.create!(project: issue.project, issue: issue, author: user, user: user, spent_on: Date.current,
                    hours: 1 + number % 4, activity: TimeEntryActivity.active.first, comments: "Work on ##{issue.id}")
end

def write_wiki(project, data, users)
  start = write_page(project, users[0], "Wiki", "h1. #{data[:name]}\n\n#{data[:description]}\n\n* [[Getting started]]\n* [[Releases]]\n* [[Glossary]]")
  guide = write_page(project, users[2], "Getting started", "h1. Getting started\n\nAsk #{users[0].name} for access, then read [[Releases]].\n\n" \
                     "<pre><code class=\"ruby\">\nputs \"#{data[:identifier]}\"\n</code></pre>", parent: start)
  write_page(project, users[1], "Releases", "h1. Releases\n\n|_. Version|_. Month|\n|1.0|March|\n|1.1|April|\n|2.0|May|", parent: start)
  terms = data[:categories].map { |category| "* *#{category}*: see the category of the same name" }
  write_page(project, users[3], "Glossary", "h1. Glossary\n\n#{terms.join("\n")}", parent: start)
  attach(guide, users[2], "accounts.csv", "text/csv", "login;name\n#{users.map { |user| "#{user.login};#{user.name}" }.join("\n")}\n")
end

def write_forum(project, data, users)
  board = Board.create!(project: project, name: "Questions", description: "Questions about #{data[:name]}")
  topic = Message.create!(board: board, author: users[6], subject: "Where do I report an idea?",
                          content: "Is the forum the right place, or should I open an issue?")
  Message.create!(board: board, author: users[0], parent: topic, subject: "RE: #{topic.subject}",
                  content: "Here first; it becomes an issue once two people want it.")
  News.create!(project: project, author: users[1], title: "#{data[:name]} 1.0 is out", summary: "First release of the year",
               description: "Thanks to everybody. What comes next is on the roadmap.")
end

at(0)
configure
members = create_people
users = members.map(&:first)
PROJECTS.each do |data|
  at(0)
  project = create_project(data, members)
  write_wiki(project, data, users)
  create_issues(project, data, users)
  at(500)
  write_forum(project, data, users)
end
travel_back

puts "#{Project.count} projects, #{User.active.count - 1} people, #{Issue.count} issues, #{Journal.count} notes, " \
     "#{WikiPage.count} wiki pages, #{Message.count} messages, #{Attachment.count} attachments"
