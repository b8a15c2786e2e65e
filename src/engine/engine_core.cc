// One step of serving. Everything here runs on one thread.
#include "engine/engine_core.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/hash.h"
#include "base/planted_bug.h"
#include "engine/sample/constraint_chain.h"
#include "model/forward.h"

namespace nibble {
namespace {

/// Waiting prompts looked up again per step: others may have published what they share.
constexpr size_t kRefreshedPerStep = 4;

double steady_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

/// FNV-1a over whole tokens.
uint64_t hash_of(const SequenceRequest& request) {
  uint64_t hash = kFnvBasis ^ request.cache.salt;
  for (const int32_t token : request.prompt) hash = fnv1a(hash, static_cast<uint32_t>(token));
  return hash;
}

EngineSettings with_clock(EngineSettings settings) {
  if (!settings.clock_ms) settings.clock_ms = steady_ms;
  return settings;
}

SchedulerLimits scheduler_limits(const EngineSettings& settings) {
  SchedulerLimits limits;
  limits.rows_max = settings.pools.rows_max;
  limits.sequences_max = settings.sequences_max;
  limits.chunk_tokens_max = settings.chunk_tokens_max;
  limits.step_ms = settings.step_ms;
  limits.long_tokens = settings.long_prompt_tokens;
  return limits;
}

}  // namespace

EngineCore::EngineCore(Backend& backend, ModelConfig config, Sampler sampler,
                       const EngineSettings& settings)
    : backend_(backend),
      config_(std::move(config)),
      sampler_(sampler, settings.sampling_threads),
      settings_(with_clock(settings)),
      memory_(backend, settings.pools, settings.cache),
      scheduler_(scheduler_limits(settings), CostModel{}),
      media_(backend, config_, settings.pools,
             settings.integrity == IntegrityChecks::every_step ? MediaEncoder::Freed::poisoned
                                                               : MediaEncoder::Freed::as_it_is),
      shared_odds_{settings.model_drafts > 0 ? 0.9 : 0.5, 0.7, 0.9} {
  CHECK(settings_.pools.rows_max >= settings_.sequences_max + kPageTokens, "rows_max ",
        settings_.pools.rows_max, " for ", settings_.sequences_max, " sequences");
  CHECK(sampler.vocab_rows() == config_.vocab_rows, "sampler rows ", sampler.vocab_rows());
  CHECK(settings_.pools.replay_rows != 1, "a pass drafts its first row and at least one more");
  CHECK(settings_.model_drafts == 0 ||
            (backend_.drafts() && settings_.model_drafts < settings_.pools.replay_rows),
        "drafts of ", settings_.model_drafts, " tokens by the model, ", settings_.pools.replay_rows,
        " rows");
  backend_.set_sampleable(sampler_.sampler().sampleable());
}

EngineCore::~EngineCore() {
  if (under_way_ && backend_.alive().ok()) backend_.end_head();
}

void EngineCore::submit(SequenceRequest request) {
  for (const auto& sequence : live_)
    CHECK(sequence->request.id != request.id, "sequence id ", request.id, " is live");
  auto sequence = std::make_unique<Sequence>();
  sequence->odds = shared_odds_;
  sequence->trials.share = std::max(shared_trials_, DraftTrials::kShareFirst);
  sequence->request = std::move(request);
  sequence->serial = ++submitted_;
  sequence->prompt_hash = hash_of(sequence->request);
  for (const MediaRows& media : sequence->request.media)
    sequence->media_spans.push_back(media.span);
  sequence->media_held.assign(sequence->request.media.size(), -1);
  sequence->media_known.assign(sequence->request.media.size(), 0);
  place_media(sequence->request);
  sequence->next_position = sequence->prompt_size();
  if (!sequence->request.positions.empty()) {
    int32_t last = -1;
    for (const auto& position : sequence->request.positions)
      last = std::max(last, *std::ranges::max_element(position));
    sequence->next_position = last + 1;
  }
  sequence->arrival_ms = now_ms();
  memory_.look_up(*sequence);
  live_.push_back(std::move(sequence));
}

/// Positions by the grids of media, unless the request has its own.
void EngineCore::place_media(SequenceRequest& request) const {
  std::vector<PlacedGrid> grids;
  for (const MediaRows& media : request.media)
    grids.push_back({.begin = media.span.begin, .grid = media.patches->grid});
  if (!request.positions.empty() || grids.empty()) return;
  request.positions =
      media_positions(static_cast<int32_t>(request.prompt.size()), grids, config_.vision->merge);
}

void EngineCore::cancel(uint64_t id) {
  for (const auto& sequence : live_) {
    if (planted(kBugCancelMissesNew) && sequence->arrival_ms == now_ms()) continue;
    if (sequence->request.id == id) finish(*sequence, FinishReason::cancelled);
  }
  drop_finished();
}

void EngineCore::cancel_all() {
  for (const auto& sequence : live_) finish(*sequence, FinishReason::cancelled);
  drop_finished();
}

void EngineCore::forget_caches() {
  memory_.cache().clear();
  media_.clear();
}

Phase EngineCore::phase(uint64_t id) const {
  for (const auto& sequence : live_)
    if (sequence->request.id == id) return sequence->phase;
  CHECK(false, "sequence ", id, " is not live");
}

void EngineCore::preempt(uint64_t id) { to_preempt_.push_back(id); }

std::vector<EngineEvent> EngineCore::step() {
  if (end_if_lost()) return std::exchange(events_, {});
  const double begin_ms = now_ms();
  end_expired(planted(kBugDeadlineLate) ? begin_ms - 100.0 : begin_ms);
  const bool alive = under_way_ ? step_ahead(begin_ms) : step_in_order(begin_ms);
  if (alive && settings_.integrity == IntegrityChecks::every_step) {
    memory_.poison_freed();
    check_integrity();
  }
  return std::exchange(events_, {});
}

bool EngineCore::step_in_order(double begin_ms) {
  refresh_matches();
  media_.prepare(live_);
  choose_candidates();
  scheduler_.beside(media_.busy() ? Scheduler::Encoder::works : Scheduler::Encoder::rests);
  const Schedule schedule = scheduler_.next(views_, free_resources(), begin_ms);
  scheduled_ = submitted_;
  carry_out(schedule, begin_ms);
  Pass pass = build_pass(schedule, begin_ms);
  const PassShape shape = pass.shape;
  if (!pass.parts.empty()) {
    const Residual h = run_layers(backend_, config_, pass.batch);  // a device computes from here
    make_choices(pass);                                            // meanwhile
    if (!finish_pass(std::move(pass), h, begin_ms)) return false;
  } else if (masks_awaited_ && !media_.busy()) {
    std::this_thread::sleep_for(kMaskWait);
  }
  drop_finished();
  if (media_.busy()) encode(shape);
  return true;
}

bool EngineCore::finish_pass(Pass pass, Residual h, double now_ms) {
  if (may_stay_under_way(pass) && backend_.begin_head(pass.batch, h)) {
    under_way_ = std::move(pass);
    return true;
  }
  const HeadOutput output = backend_.head(pass.batch, h);  // waits
  return take_tokens(pass, output, now_ms);
}

bool EngineCore::take_tokens(const Pass& pass, const HeadOutput& output, double now_ms) {
  if (end_if_lost()) return false;
  absorb(pass, output, now_ms);
  sampler_.sample(rows_);
  for (const Sampled& sampled : sampled_) accept(sampled);
  scheduler_.observe(pass.shape, this->now_ms() - pass.begin_ms);
  ++counters_.passes;
  return true;
}

/// The time that the pass leaves of the step goes to the media that prompts wait for.
void EngineCore::encode(const PassShape& pass) {
  const auto decoding = static_cast<int32_t>(count_phases()[static_cast<size_t>(Phase::decode)]);
  const MediaEncoder::Worked worked =
      media_.work(scheduler_.encoder_ms(pass, decoding), settings_.clock_ms);
  scheduler_.charge_encoder(worked.tenant, worked.ms);
  for (const auto& s : live_)
    if (worked.failed == s->request.id)
      finish(*s, FinishReason::error,
             {.error = "the vision tower gives numbers that are not finite for its media"});
  drop_finished();
}

/// Without a device nothing runs again, and what the last pass gave means nothing.
bool EngineCore::end_if_lost() {
  const Result<void> alive = backend_.alive();
  if (alive.ok()) return false;
  under_way_.reset();
  drop_finished();
  for (const auto& sequence : live_) {
    memory_.condemn(*sequence);
    finish(*sequence, FinishReason::error, {.error = alive.error().message});
  }
  drop_finished();
  return true;
}

double EngineCore::first_token_ms(int32_t prompt_size) const {
  return scheduler_.first_token_ms(views_, prompt_size, mean_output_tokens_);
}

std::array<int64_t, 4> EngineCore::count_phases() const {
  std::array<int64_t, 4> counts = {};
  for (const auto& s : live_) ++counts[static_cast<size_t>(s->phase)];
  return counts;
}

int64_t EngineCore::waiting_tokens() const {
  int64_t tokens = 0;
  for (const auto& s : live_) tokens += s->phase == Phase::waiting ? s->prompt_size() : 0;
  return tokens;
}

/// A sequence whose whole prompt an earlier one computes or will, as the choices of one request do,
/// waits for it and finds it in the cache.
bool EngineCore::waits_for_twin(const Sequence& sequence) const {
  if (sequence.phase != Phase::waiting || settings_.cache == CacheMode::off) return false;
  const SequenceRequest& request = sequence.request;
  if (sequence.prompt_size() <= kPageTokens || request.prompt_logprobs >= 0) return false;
  const auto [begin, end] = computing_.equal_range(sequence.prompt_hash);
  if (planted(kBugUrgentWaitsForTwin) && begin != end) return true;
  return std::any_of(begin, end, [&](const auto& entry) {
    const SequenceRequest& other = entry.second->request;
    return other.cache.salt == request.cache.salt &&
           other.urgency.priority <= request.urgency.priority && other.prompt == request.prompt &&
           std::ranges::equal(entry.second->media_spans, sequence.media_spans);
  });
}

SlowConstraint::Next EngineCore::ask_for_masks(const Sequence& sequence) {
  const bool runs = sequence.phase == Phase::prefill || sequence.phase == Phase::decode;
  if (!runs || !sequence.request.constraint) return SlowConstraint::Next::ready;
  return next_of(*sequence.request.constraint, sequence.drafts);
}

/// Its masks are made by other threads. Without them it sits out passes.
bool EngineCore::waits_for_mask(const Sequence& sequence) {
  const bool waits =
      ask_patiently([&] { return ask_for_masks(sequence); }) != SlowConstraint::Next::ready;
  masks_awaited_ = masks_awaited_ || waits;
  return waits;
}

void EngineCore::choose_candidates() {
  candidates_.clear();
  views_.clear();
  computing_.clear();
  masks_awaited_ = false;
  draft();
  for (const auto& s : live_) ask_for_masks(*s);  // all are begun before one is waited for
  for (const auto& s : live_) {
    if (waits_for_twin(*s) || waits_for_mask(*s)) continue;
    candidates_.push_back(s.get());
    views_.push_back(view_of(*s));
    if (s->phase == Phase::waiting || (s->phase == Phase::prefill && s->cursor))
      computing_.emplace(s->prompt_hash, s.get());
  }
}

SequenceView EngineCore::view_of(const Sequence& s) const {
  SequenceView view{.phase = s.phase,
                    .prompt_size = s.prompt_size(),
                    .cached = s.cached,
                    .hit_tokens = s.hit_tokens,
                    .tokens_max = s.tokens_max(),
                    .pages_held = static_cast<int32_t>(s.pages.size()),
                    .tenant = s.request.urgency.tenant,
                    .weight = s.request.urgency.weight,
                    .priority = s.request.urgency.priority,
                    .arrival_ms = s.arrival_ms,
                    .swapped_ms = s.swapped_ms,
                    .times_swapped = s.times_swapped,
                    .drafts = static_cast<int32_t>(s.drafts.size()),
                    .draft_odds = s.odds_of(s.proposer),
                    .draft_is_trial = s.trials.running};
  if (s.phase == Phase::waiting) {
    view.cached = s.match.tokens;
    view.pages_held = s.match.device_pages - s.match.idle_pages;
  } else if (s.phase == Phase::swapped) {
    view.pages_private = static_cast<int32_t>(s.host_pages.size());
  } else {
    view.pages_private = memory_.private_pages(s);
  }
  view.prompt_ready = media_.ready(s, view.cached);
  return view;
}

FreeResources EngineCore::free_resources() const {
  const PrefixCache& cache = memory_.cache();
  return {.pages = cache.available_pages(),
          .state_slots = cache.available_slots(),
          .host_pages = cache.available_host_pages(),
          .host_slots = cache.available_host_slots()};
}

void EngineCore::end_expired(double now_ms) {
  for (const auto& s : live_) {
    const double deadline = s->request.urgency.deadline_ms;
    if (deadline <= 0.0 || now_ms < deadline) continue;
    finish(*s, FinishReason::deadline);
    ++counters_.expired;
  }
  drop_finished();
}

void EngineCore::refresh_matches() {
  for (size_t i = 0; i < std::min(kRefreshedPerStep, live_.size()); ++i) {
    Sequence& s = *live_[next_refresh_++ % live_.size()];
    if (s.phase == Phase::waiting) memory_.look_up(s);
  }
}

void EngineCore::carry_out(const Schedule& schedule, double now_ms) {
  for (const uint64_t id : std::exchange(to_preempt_, {}))
    for (const auto& s : live_)
      if (s->request.id == id && s->state_slot >= 0) swap_out_or_restart(*s, now_ms);
  for (const int32_t index : schedule.swapped_out) {
    Sequence& s = *candidates_[static_cast<size_t>(index)];
    if (s.state_slot >= 0) swap_out_or_restart(s, now_ms);
  }
  // A pool may refuse (another one took what the scheduler counted on): then it stays as it is.
  for (const Placement& place : schedule.resumed) {
    const auto index = static_cast<size_t>(place.sequence);
    const int32_t pages = views_[index].pages_held + place.pages;
    if (memory_.swap_in(*candidates_[index], pages, now_ms) == Attempt::done) ++counters_.swaps_in;
  }
  for (const Placement& place : schedule.admitted) {
    const auto index = static_cast<size_t>(place.sequence);
    memory_.admit(*candidates_[index], views_[index].pages_held + place.pages, now_ms);
  }
}

/// With no room on the host its tokens are kept and its cache is computed again later: the prompt
/// in prompt arithmetic, the generated tokens in theirs, so the bits are the same.
void EngineCore::swap_out_or_restart(Sequence& sequence, double now_ms) {
  if (memory_.swap_out(sequence, now_ms) == Attempt::done) {
    ++counters_.swaps_out;
    return;
  }
  restart(sequence, now_ms);
}

void EngineCore::restart(Sequence& sequence, double now_ms) {
  memory_.release(sequence, now_ms);
  sequence.phase = Phase::waiting;
  sequence.cached = sequence.replay = 0;
  memory_.look_up(sequence);
  ++sequence.times_swapped;
  ++counters_.recomputes;
}

void EngineCore::finish(Sequence& sequence, FinishReason reason, Finished details) {
  details.id = sequence.request.id;
  details.reason = reason;
  details.prompt_tokens = sequence.prompt_size();
  details.completion_tokens = sequence.generated_size() + (details.stop_token >= 0 ? 1 : 0);
  if (planted(kBugCountsVoidRow) && under_way_) ++details.completion_tokens;
  details.cached_tokens = sequence.hit_tokens;
  details.drafted_tokens = sequence.drafted;
  details.accepted_tokens = sequence.drafts_right;
  finished_.push_back(details.id);
  constexpr double kDecay = 0.95;
  if (reason == FinishReason::stop || reason == FinishReason::length)
    mean_output_tokens_ = kDecay * mean_output_tokens_ + (1.0 - kDecay) * sequence.generated_size();
  events_.emplace_back(std::move(details));
}

void EngineCore::drop_finished() {
  if (finished_.empty()) return;
  const auto has_ended = [&](const Sequence& s) {
    return std::ranges::find(finished_, s.request.id) != finished_.end();
  };
  if (under_way_)
    for (Part& part : under_way_->parts)
      if (part.sequence != nullptr && has_ended(*part.sequence)) part.sequence = nullptr;
  std::erase_if(live_, [&](const std::unique_ptr<Sequence>& s) {
    if (!has_ended(*s)) return false;
    media_.forget(*s);
    memory_.release(*s, now_ms());
    return true;
  });
  finished_.clear();
}

void EngineCore::check_integrity() const {
  std::vector<const Sequence*> live;
  live.reserve(live_.size());
  for (const auto& s : live_) live.push_back(s.get());
  memory_.check_integrity(live);
  media_.check_integrity(live_);
}

}  // namespace nibble
