# frozen_string_literal: true

# Find everything at once where record_boot.rb, at build time, saw Bundler find it: no lock file is resolved, no
# gem specification read, no source compiled, no directory searched. Debian's Redmine itself is left as it is.

BOOT_DIRECTORY = "/var/lib/redmine/boot"

# config/boot.rb leaves Bundler alone where there is no Gemfile.
ENV["BUNDLE_GEMFILE"] = "#{BOOT_DIRECTORY}/no-gemfile"
$LOAD_PATH.replace(File.readlines("#{BOOT_DIRECTORY}/load_path", chomp: true))

require "bootsnap"
Bootsnap.setup(cache_dir: BOOT_DIRECTORY, development_mode: false)

# Libraries check the versions of their optional companions; Bundler did so at build time.
module Kernel
  def gem(*) = true
  private :gem
end

# What config/application.rb and Bootsnap ask of Bundler.
module Bundler
  def self.require(*) = File.foreach("#{BOOT_DIRECTORY}/gems", chomp: true) { |feature| Kernel.require(feature) }
  def self.bundle_path = Pathname.new(BOOT_DIRECTORY)
end

require "/usr/share/redmine/config/application"
# Puma takes its presence for the real one.
Object.send(:remove_const, :Bundler)

# PostgreSQL was started at the same time and has long been ready, unless the machine is overloaded.
def await_database(timeout_s: 60)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + timeout_s
  until PG::Connection.ping(host: "/run/postgresql") == PG::PQPING_OK
    abort "PostgreSQL does not answer after #{timeout_s} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.005
  end
end

await_database
Rails.application.initialize!
