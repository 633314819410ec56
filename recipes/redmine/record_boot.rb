# frozen_string_literal: true

# Write down, for root/usr/local/lib/redmine/boot.rb, the load path that Bundler makes and the gems it loads.

# Redmine loads these itself where it needs them; as a gem they cost 110 ms at every start.
LATER = %w[rouge rbpdf].freeze

require "bundler/setup"

directory = ARGV.fetch(0)
gems = []
Kernel.singleton_class.prepend(Module.new do
  define_method(:require) do |feature|
    by_bundler = caller_locations(1, 1).first.path.end_with?("/bundler/runtime.rb")
    super(feature).tap { gems << feature if by_bundler }
  end
end)

File.write("#{directory}/load_path", $LOAD_PATH.join("\n"))
require "/usr/share/redmine/config/application"
abort "no gem was seen being loaded: Bundler#require works in another way here" if gems.empty?
File.write("#{directory}/gems", (gems - ["bundler"] - LATER).join("\n"))
