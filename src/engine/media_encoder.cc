// Who needs which rows, and the one job under way.
#include "engine/media_encoder.h"

#include <algorithm>

#include "base/planted_bug.h"

namespace nibble {
namespace {

constexpr int32_t kNotHeld = -1;
/// A budget may be used in so many parts: the first ones of a job are for learning what it costs.
constexpr int kPartsMost = 6;
/// Passes without a new row after which a sequence may lose what it holds. It got rows for that
/// many passes, so whoever can go on does.
constexpr int32_t kIdleMost = 64;
constexpr double kLearned = 0.3;  // weight of the newest measurement

int32_t end_of(const MediaSpan& span) { return span.begin + span.count; }

bool enabled_in(const Backend& backend, const ModelConfig& config) {
  return config.vision.has_value() && backend.has_vision();
}

/// The end of the block of prompt rows that comes after `cached` tokens.
int32_t next_block_end(const Sequence& s) {
  return std::min(s.cached / kPageTokens * kPageTokens + kPageTokens, s.prompt_size());
}

}  // namespace

MediaEncoder::MediaEncoder(Backend& backend, const ModelConfig& config, const PoolSizes& sizes,
                           Freed freed)
    : backend_(backend),
      vision_(config.vision),
      workspace_rows_(sizes.vision_rows),
      look_ahead_(sizes.rows_max + kPageTokens),
      freed_(freed),
      on_host_(backend, enabled_in(backend, config) ? sizes.host_media_rows : 0),
      cache_(enabled_in(backend, config) ? sizes.media_rows : 0,
             [this](const MediaKey& key, uint64_t tenant, std::span<const int32_t> places) {
               on_host_.keep(key, tenant, places);
             }) {}

Result<void> MediaEncoder::admissible(const SequenceRequest& request) const {
  for (size_t i = 0; i < request.media.size(); ++i) {
    const MediaRows& media = request.media[i];
    const int64_t patches = media.patches->grid.frame_patches();
    if (vision_rows_of(patches) > workspace_rows_)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "an image or a frame of a video",
                         .expected = concat("at most ", workspace_rows_, " patches"),
                         .found = concat(patches),
                         .advice = "send a smaller one, or raise --max-image-tokens"});
    const int32_t block = media.span.begin / kPageTokens * kPageTokens;
    std::vector<MediaKey> keys;  // media with a row in the block where this one begins
    int64_t held = 0;
    for (size_t j = i + 1; j > 0 && end_of(request.media[j - 1].span) > block; --j) {
      const MediaKey key = key_of(request, request.media[j - 1]);
      if (std::ranges::find(keys, key) != keys.end()) continue;  // the same image again
      keys.push_back(key);
      held += key.rows;
    }
    if (held > cache_.size())
      return make_error(ErrorCode::no_memory,
                        {.what = "media that a prompt has in a row",
                         .expected = concat("at most ", cache_.size(), " tokens of them"),
                         .found = concat(held),
                         .advice = "send smaller images, or raise --encoder-cache-memory-bytes"});
  }
  return {};
}

MediaKey MediaEncoder::key_of(const SequenceRequest& request, const MediaRows& media) {
  return {.salt = planted(kBugMediaKeyIgnoresSalt) ? 0 : request.cache.salt,
          .digest = media.span.digest,
          .rows = media.span.count};
}

/// Holds what the next passes read and is there; lets go what they do not.
void MediaEncoder::hold_ready(Sequence& s) {
  if (s.phase != Phase::prefill) return release(s);
  for (size_t i = 0; i < s.request.media.size(); ++i) {
    const MediaRows& media = s.request.media[i];
    int32_t& held = s.media_held[i];
    const bool needed = end_of(media.span) > s.cached && media.span.begin < s.cached + look_ahead_;
    if (!needed && held != kNotHeld) {
      cache_.release(std::exchange(held, kNotHeld));
    } else if (needed && held == kNotHeld) {
      const auto found = cache_.find(key_of(s.request, media));
      if (!found) continue;
      held = *found;
      cache_.hold(held);
      counters_.found += std::exchange(s.media_known[i], char{1}) != 0 ? 0 : 1;
    }
  }
  const bool went_on = s.cached != s.media_cached || encoded_for_ == s.request.id;
  s.media_idle = went_on ? 0 : s.media_idle + 1;
  s.media_cached = s.cached;
}

std::vector<size_t> MediaEncoder::missing(const Sequence& s, int32_t begin, int32_t end) {
  std::vector<size_t> media;
  for (size_t i = 0; i < s.request.media.size(); ++i) {
    const MediaSpan& span = s.request.media[i].span;
    if (s.media_held[i] == kNotHeld && end_of(span) > begin && span.begin < end) media.push_back(i);
  }
  return media;
}

void MediaEncoder::prepare(Live live) {
  if (!enabled()) return;
  for (const auto& s : live) hold_ready(*s);
  encoded_for_.reset();
  if (job_) return;
  order_.clear();
  for (const auto& s : live) order_.push_back(s.get());
  std::ranges::stable_sort(order_, {},
                           [](const Sequence* s) { return s->request.urgency.priority; });
  // First for a prompt that cannot go on, then ahead of one that can.
  for (const Taking taking : {Taking::held_rows, Taking::idle_rows})
    for (size_t at = 0; at < order_.size(); ++at) {
      const Sequence& s = *order_[at];
      if (s.phase != Phase::prefill) continue;
      const bool urgent = taking == Taking::held_rows;
      std::vector<size_t> media =
          missing(s, s.cached, urgent ? next_block_end(s) : s.cached + look_ahead_);
      if (!urgent && !media.empty()) media.resize(1);
      if (media.empty()) continue;
      if (begin_job(at, media, taking) || urgent) return;  // nobody overtakes the first
    }
}

/// Rows for one medium; if they may be taken, from what others hold to no use.
std::optional<int32_t> MediaEncoder::take_rows(size_t at, const MediaRows& media, Taking taking) {
  Sequence& s = *order_[at];
  auto entry = cache_.begin(key_of(s.request, media), s.request.urgency.tenant);
  if (taking == Taking::idle_rows || planted(kBugNeverTakesMedia)) return entry;
  if (!entry) {
    release_beyond(s, next_block_end(s));
    entry = cache_.begin(key_of(s.request, media), s.request.urgency.tenant);
  }
  for (size_t i = order_.size(); !entry && i > 0; --i) {
    Sequence& other = *order_[i - 1];
    if (i - 1 == at || other.media_idle < kIdleMost) continue;
    release(other);
    entry = cache_.begin(key_of(s.request, media), s.request.urgency.tenant);
  }
  return entry;
}

bool MediaEncoder::begin_job(size_t at, const std::vector<size_t>& media, Taking taking) {
  Sequence& s = *order_[at];
  Job job{.sequence = s.request.id, .tenant = s.request.urgency.tenant, .entries = {}, .walk = {}};
  std::optional<std::vector<size_t>> chosen = take_all(at, media, taking, job);
  if (chosen) {
    for (const size_t i : *chosen) s.media_known[i] = 1;
    chosen = restore(s, *chosen, job);
  }
  on_host_.unpin();
  if (chosen && chosen->empty()) return true;
  job_ = std::move(job);
  if (!chosen) {
    drop_job();
    return false;
  }
  start_walk(s, *chosen);
  return true;
}

std::optional<std::vector<size_t>> MediaEncoder::take_all(size_t at,
                                                          const std::vector<size_t>& media,
                                                          Taking taking, Job& job) {
  const Sequence& s = *order_[at];
  std::vector<MediaKey> keys;
  std::vector<size_t> chosen;
  for (const size_t i : media) {
    const MediaKey key = key_of(s.request, s.request.media[i]);
    if (std::ranges::find(keys, key) != keys.end()) continue;  // the same image twice
    on_host_.pin(key);
    const auto entry = take_rows(at, s.request.media[i], taking);
    if (!entry) return std::nullopt;
    job.entries.push_back(*entry);
    keys.push_back(key);
    chosen.push_back(i);
  }
  return chosen;
}

std::vector<size_t> MediaEncoder::restore(Sequence& s, const std::vector<size_t>& media, Job& job) {
  std::vector<size_t> missing;
  std::vector<int32_t> entries;
  for (size_t i = 0; i < media.size(); ++i) {
    const int32_t entry = job.entries[i];
    if (!on_host_.restore(key_of(s.request, s.request.media[media[i]]), cache_.places(entry))) {
      missing.push_back(media[i]);
      entries.push_back(entry);
      continue;
    }
    cache_.finish(entry);
    s.media_held[media[i]] = entry;  // the job's hold is the sequence's now
    ++counters_.restored;
    encoded_for_ = s.request.id;
  }
  job.entries = std::move(entries);
  return missing;
}

void MediaEncoder::start_walk(const Sequence& s, const std::vector<size_t>& media) {
  std::vector<VisionFrame> frames;
  for (size_t i = 0; i < media.size(); ++i) {
    const MediaPatches* patches = s.request.media[media[i]].patches.get();
    std::span<const int32_t> places = cache_.places(job_->entries[i]);
    if (freed_ == Freed::poisoned) backend_.poison_media(places);
    const auto each = places.size() / static_cast<size_t>(patches->grid.t);
    for (int32_t t = 0; t < patches->grid.t; ++t, places = places.subspan(each))
      frames.push_back({.media = patches, .t = t, .places = places.first(each)});
  }
  job_->walk = VisionWalk(*vision_, std::move(frames), workspace_rows_);
}

int32_t MediaEncoder::ready(const Sequence& s, int32_t cached) const {
  for (size_t i = 0; i < s.request.media.size() && !planted(kBugReadsMediaEarly); ++i) {
    const MediaRows& media = s.request.media[i];
    if (s.media_held[i] == kNotHeld && end_of(media.span) > cached)
      return std::max(media.span.begin, cached);
  }
  return s.prompt_size();
}

std::span<const int32_t> MediaEncoder::places(const Sequence& s, size_t medium) const {
  CHECK(s.media_held[medium] != kNotHeld, "rows of media that are not there, sequence ",
        s.request.id);
  return cache_.places(s.media_held[medium]);
}

MediaEncoder::Worked MediaEncoder::work(double budget_ms, const std::function<double()>& clock_ms) {
  const double begin_ms = clock_ms();
  double now_ms = begin_ms;
  for (int part = 0; part < kPartsMost && !job_->walk.done(); ++part) {
    const double left_ms = budget_ms - (now_ms - begin_ms);
    if (part > 0 && left_ms < budget_ms / 4) break;
    const double before_ms = now_ms;
    const double done = job_->walk.advance(backend_, ms_per_work_ > 0 ? left_ms / ms_per_work_ : 0);
    backend_.wait_vision();
    now_ms = clock_ms();
    const double measured = (now_ms - before_ms) / done;
    ms_per_work_ =
        ms_per_work_ > 0 ? ms_per_work_ + kLearned * (measured - ms_per_work_) : measured;
  }
  Worked worked{.tenant = job_->tenant, .ms = now_ms - begin_ms, .failed = {}};
  counters_.encode_ms += worked.ms;
  if (job_->walk.done()) worked.failed = finish_job();
  return worked;
}

std::optional<uint64_t> MediaEncoder::finish_job() {
  const auto finite = [&](int32_t entry) { return backend_.finite_media(cache_.places(entry)); };
  if (!std::ranges::all_of(job_->entries, finite)) {
    const uint64_t sequence = job_->sequence;
    drop_job();
    return sequence;
  }
  for (const int32_t entry : job_->entries) {
    cache_.finish(entry);
    cache_.release(entry);
    ++counters_.encoded;
    counters_.encoded_rows += std::ssize(cache_.places(entry));
  }
  encoded_for_ = job_->sequence;
  job_.reset();
  return std::nullopt;
}

void MediaEncoder::drop_job() {
  for (const int32_t entry : job_->entries) cache_.drop(entry);
  job_.reset();
}

void MediaEncoder::clear() {
  if (job_) drop_job();
  cache_.clear();
  on_host_.clear();
}

void MediaEncoder::release_beyond(Sequence& sequence, int32_t begin) {
  for (size_t i = 0; i < sequence.media_held.size(); ++i) {
    int32_t& held = sequence.media_held[i];
    if (held != kNotHeld && sequence.request.media[i].span.begin >= begin)
      cache_.release(std::exchange(held, kNotHeld));
  }
}

void MediaEncoder::forget(Sequence& sequence) {
  release(sequence);
  if (!job_ || job_->sequence != sequence.request.id || planted(kBugKeepsMediaJob)) return;
  drop_job();
  ++counters_.abandoned;
}

MediaCounters MediaEncoder::counters() const {
  MediaCounters counters = counters_;
  counters.evicted = cache_.evicted();
  return counters;
}

void MediaEncoder::check_integrity(Live live) const {
  if (!enabled()) return;
  if (job_)
    CHECK(std::ranges::any_of(live, [&](const auto& s) { return s->request.id == job_->sequence; }),
          "a job for sequence ", job_->sequence, ", which has ended");
  cache_.check_integrity([&](int32_t entry) {
    int64_t holders = job_ ? std::ranges::count(job_->entries, entry) : 0;
    for (const auto& s : live) holders += std::ranges::count(s->media_held, entry);
    return static_cast<int32_t>(holders);
  });
  on_host_.check_integrity();
}

}  // namespace nibble
