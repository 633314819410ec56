# frozen_string_literal: true

# Write down, for root/usr/local/lib/redmine/boot.rb, the load path that Bundler makes and the gems it loads.

require "bundler/setup"
require "bundler/runtime"

# Redmine loads these itself where it needs them; as gems they cost 110 ms at every start.
LATER = %w[rouge rbpdf].freeze
REQUIRED = []

class Bundler::Runtime
  # Stands in for ::Kernel in Bundler's own code, which tries several names for a gem.
  module Kernel
    def self.require(feature) = ::Kernel.require(feature).tap { REQUIRED << feature }
  end
end

directory = ARGV.fetch(0)
File.write("#{directory}/load_path", $LOAD_PATH.join("\n"))
require "/usr/share/redmine/config/application"
abort "no gem was seen being loaded: Bundler works in another way here" if REQUIRED.empty?
File.write("#{directory}/gems", (REQUIRED - LATER - ["bundler"]).join("\n"))
