// FilterStore: the filters that specs name, each made once, however many keys and profiles name it.
// One thread at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/filters/output_filter.h"

namespace nibble {

/// The filters that a text has to pass: all of them.
using FilterSet = std::vector<std::shared_ptr<OutputFilter>>;
/// Adds those of `more` that are not there.
void add_filters(FilterSet& set, const FilterSet& more);

class FilterStore {
 public:
  explicit FilterStore(FilterReport report, std::filesystem::path ca = {})
      : report_(std::move(report)), ca_(std::move(ca)) {}
  /// The filter of `spec`. Errors: those of make_filter; more than 64 at once.
  Result<std::shared_ptr<OutputFilter>> get(const std::string& spec);
  Result<FilterSet> get_all(const std::vector<std::string>& specs);
  /// Ends those that nobody holds any more. Only here are filters ended while the store lives: it
  /// may take as long as their last answer.
  void sweep();

 private:
  FilterReport report_;
  std::filesystem::path ca_;
  std::map<std::string, std::shared_ptr<OutputFilter>> filters_;
};

}  // namespace nibble
