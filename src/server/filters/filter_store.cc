// Sharing and bounding filters.
#include "server/filters/filter_store.h"

#include <algorithm>

namespace nibble {

namespace {

constexpr size_t kFiltersMax = 64;  // each has a thread, perhaps a program

}  // namespace

void add_filters(FilterSet& set, const FilterSet& more) {
  for (const auto& filter : more)
    if (std::ranges::find(set, filter) == set.end()) set.push_back(filter);
}

Result<std::shared_ptr<OutputFilter>> FilterStore::get(const std::string& spec) {
  const auto found = filters_.find(spec);
  if (found != filters_.end()) return found->second;
  if (filters_.size() >= kFiltersMax)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "filters",
                       .expected = concat("at most ", kFiltersMax, " different ones"),
                       .found = concat("one more: ", spec.substr(0, 100))});
  std::shared_ptr<OutputFilter> made = TRY(make_filter(spec, report_, ca_));
  filters_[spec] = made;
  return made;
}

Result<FilterSet> FilterStore::get_all(const std::vector<std::string>& specs) {
  FilterSet set;
  for (const std::string& spec : specs) add_filters(set, {TRY(get(spec))});
  return set;
}

void FilterStore::sweep() {
  std::erase_if(filters_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

}  // namespace nibble
