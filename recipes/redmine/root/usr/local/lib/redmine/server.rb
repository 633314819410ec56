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
Puma::Launcher.new(configuration).run
