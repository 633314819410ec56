# frozen_string_literal: true

# Load classes when they are first used: the first page needs a third of them.
Rails.application.config.eager_load = false
