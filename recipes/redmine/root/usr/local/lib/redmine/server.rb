# frozen_string_literal: true

require_relative "boot"
require "puma"
require "puma/configuration"
require "puma/launcher"

configuration = Puma::Configuration.new do |puma|
  puma.app Rails.application
  puma.environment "production"
  puma.bind "tcp://0.0.0.0:80"
  puma.threads 1, 3
end
launcher = Puma::Launcher.new(configuration)
# Nothing here is worth Puma's graceful stop, which on Ruby 3.3 now and then never ends: one thread closes the pipe
# that another is writing to.
launcher.events.on_booted { %w[INT TERM].each { |signal| trap(signal) { exit!(0) } } }
launcher.run
