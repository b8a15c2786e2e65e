// Cases and their time limits. One timer sweeps all of them: questions are many and short.
#include "server/filters/filter_panel.h"

#include <algorithm>

#include "base/check.h"
#include "base/concat.h"
#include "base/json.h"

namespace nibble {

namespace {

constexpr size_t kOpenMax = 16'384;  // questions at once; beyond, they fail
constexpr size_t kCountedMax =
    256;  // names; filters beyond, come with new keys, are counted as one

}  // namespace

struct FilterPanel::Case {
  Done done;                    // empty once it was called
  std::vector<Counts*> counts;  // counts of each filter; empty: it has answered
  size_t waiting = 0;
  uint64_t last_look = 0;  // then its time is over
};

FilterPanel::FilterPanel(FilterOptions options, Server server)
    : options_(std::move(options)), server_(std::move(server)), door_(std::make_shared<Door>()) {
  door_->panel = this;
  for (const auto& filter : options_.filters) counts_of(*filter);
}

FilterPanel::~FilterPanel() {
  const std::lock_guard lock(door_->mutex);
  door_->panel = nullptr;
}

FilterPanel::Counts& FilterPanel::counts_of(const OutputFilter& filter) {
  const auto found = counts_.find(filter.name());
  if (found != counts_.end()) return found->second;
  return counts_[counts_.size() < kCountedMax ? std::string(filter.name()) : "others"];
}

void FilterPanel::judge(const FilterSet& filters, FilterQuestion question, Done done) {
  if (filters.empty() || open_.size() >= kOpenMax) {
    const bool pass = filters.empty() || options_.fail == FilterFail::open;
    return server_.post([done = std::move(done), pass] {
      done(pass ? FilterVerdict::pass : FilterVerdict::failed);
    });
  }
  const auto asked = std::make_shared<Case>();
  asked->done = std::move(done);
  for (const auto& filter : filters) asked->counts.push_back(&counts_of(*filter));
  asked->waiting = filters.size();
  // The next look may come at once.
  asked->last_look = looks_ + 1 + static_cast<uint64_t>(options_.timeout / look_every());
  open_.push_back(asked);
  schedule_sweep();
  const auto shared = std::make_shared<const FilterQuestion>(std::move(question));
  for (size_t i = 0; i < filters.size(); ++i) {
    ++asked->counts[i]->asked;
    // It must not hold the filter, whose own thread may be the last to let it go.
    const auto back = [door = door_, asked, i](FilterVerdict verdict) {
      const std::lock_guard lock(door->mutex);
      if (door->panel == nullptr) return;
      door->panel->server_.post([door, asked, i, verdict] {
        if (door->panel != nullptr) door->panel->answer(asked, i, verdict);
      });
    };
    filters[i]->ask(shared, back);
  }
}

void FilterPanel::answer(const std::shared_ptr<Case>& asked, size_t filter, FilterVerdict verdict) {
  if (!asked->done || asked->counts[filter] == nullptr) return;
  Counts& counts = *std::exchange(asked->counts[filter], nullptr);
  --asked->waiting;
  if (verdict == FilterVerdict::hit) ++counts.hits;
  if (verdict == FilterVerdict::failed) {
    ++counts.failures;
    if (options_.fail == FilterFail::open) verdict = FilterVerdict::pass;
  }
  if (verdict == FilterVerdict::pass && asked->waiting > 0) return;
  const Done done = std::exchange(asked->done, {});
  while (!open_.empty() && !open_.front()->done) open_.pop_front();
  done(verdict);
}

std::chrono::milliseconds FilterPanel::look_every() const {
  return std::clamp(options_.timeout / 8, std::chrono::milliseconds(5),
                    std::chrono::milliseconds(250));
}

void FilterPanel::schedule_sweep() {
  if (sweeping_) return;
  sweeping_ = true;
  server_.post_after(look_every(), [door = door_] {
    if (door->panel != nullptr) door->panel->sweep();
  });
}

void FilterPanel::sweep() {
  sweeping_ = false;
  ++looks_;
  std::vector<std::shared_ptr<Case>> late;
  for (const auto& asked : open_) {
    if (asked->last_look > looks_) break;
    late.push_back(asked);
  }
  for (const auto& asked : late)
    for (size_t i = 0; i < asked->counts.size(); ++i) answer(asked, i, FilterVerdict::failed);
  while (!open_.empty() && !open_.front()->done) open_.pop_front();
  if (!open_.empty()) schedule_sweep();
}

std::string FilterPanel::metrics_text() const {
  if (counts_.empty()) return {};
  std::string text;
  const auto family = [&](std::string_view name, std::string_view help, int64_t Counts::*count) {
    text += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " counter\n");
    for (const auto& [filter, counts] : counts_)
      text += concat(name, "{filter=", Json(filter).dump(), "} ", counts.*count, "\n");
  };
  family("nibble_filter_questions_total", "Texts a filter was asked about.", &Counts::asked);
  family("nibble_filter_hits_total", "Texts a filter did not let pass.", &Counts::hits);
  family("nibble_filter_failures_total", "Questions without an answer in time.", &Counts::failures);
  return text;
}

}  // namespace nibble
