// One step of serving. Everything here runs on one thread.
#include "engine/engine_core.h"

#include <algorithm>

#include "engine/constraint_chain.h"
#include "model/forward.h"

namespace nibble {

EngineCore::EngineCore(Backend& backend, ModelConfig config, Sampler sampler,
                       const EngineSettings& settings)
    : backend_(backend),
      config_(std::move(config)),
      sampler_(std::move(sampler)),
      settings_(settings),
      kv_pool_(settings.pools.pages),
      state_pool_(settings.pools.state_slots) {
  CHECK(settings_.pools.rows_max >= settings_.sequences_max + kPageTokens, "rows_max ",
        settings_.pools.rows_max, " for ", settings_.sequences_max, " sequences");
  CHECK(sampler_.vocab_rows() == config_.vocab_rows, "sampler rows ", sampler_.vocab_rows());
}

EngineCore::~EngineCore() = default;

Result<void> EngineCore::admissible(const SequenceRequest& request) const {
  const auto refuse = [](const ErrorParts& parts) {
    return make_error(ErrorCode::invalid_argument, parts);
  };
  if (request.prompt.empty())
    return refuse({.what = "the prompt is empty", .expected = "at least one token"});
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= config_.vocab_rows)
      return refuse({.what = "a prompt token is not in the vocabulary",
                     .expected = concat("0 to ", config_.vocab_rows - 1),
                     .found = concat(token)});
  if (request.max_tokens < 1)
    return refuse(
        {.what = "max_tokens", .expected = "at least 1", .found = concat(request.max_tokens)});
  const int64_t total = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (total > settings_.context_max)
    return refuse({.what = "the request is longer than the context",
                   .expected = concat("at most ", settings_.context_max, " tokens"),
                   .found = concat(request.prompt.size(), " of prompt and ", request.max_tokens,
                                   " to generate"),
                   .advice = "shorten the prompt or lower max_tokens"});
  if (KvPool::pages_for(total - 1) > kv_pool_.size())
    return make_error(ErrorCode::no_memory,
                      {.what = "the request can never fit the cache",
                       .expected = concat("at most ", kv_pool_.size(), " pages of ", kPageTokens),
                       .found = concat(total, " tokens"),
                       .advice = "raise --kv-cache-memory-bytes"});
  return {};
}

void EngineCore::submit(SequenceRequest request) {
  for (const auto& sequence : live_)
    CHECK(sequence->request.id != request.id, "sequence id ", request.id, " is live");
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::move(request);
  live_.push_back(std::move(sequence));
}

void EngineCore::cancel(uint64_t id) {
  for (const auto& sequence : live_)
    if (sequence->request.id == id) finish(*sequence, FinishReason::cancelled);
  drop_finished();
}

void EngineCore::cancel_all() {
  for (const auto& sequence : live_) finish(*sequence, FinishReason::cancelled);
  drop_finished();
}

std::vector<EngineEvent> EngineCore::step() {
  const Schedule schedule = plan();
  for (const int32_t index : schedule.admitted) admit(*live_[static_cast<size_t>(index)]);
  if (!schedule.rows.empty()) {
    const Batch batch = build_batch(schedule);
    absorb(schedule, forward(backend_, config_, batch));
  }
  drop_finished();
  if (settings_.integrity == IntegrityChecks::every_step) check_integrity();
  return std::exchange(events_, {});
}

Schedule EngineCore::plan() const {
  std::vector<SequenceView> views;
  views.reserve(live_.size());
  for (const auto& s : live_)
    views.push_back({.phase = s->phase,
                     .prompt_size = s->prompt_size(),
                     .cached = s->cached,
                     .tokens_max = s->tokens_max()});
  return schedule(views, {.pages = kv_pool_.free_count(), .state_slots = state_pool_.free_count()},
                  {.rows_max = settings_.pools.rows_max, .sequences_max = settings_.sequences_max});
}

void EngineCore::admit(Sequence& sequence) {
  auto pages = kv_pool_.allocate(KvPool::pages_for(sequence.tokens_max()));
  const auto slot = state_pool_.allocate();
  CHECK(pages && slot, "the scheduler admitted sequence ", sequence.request.id, " without room");
  sequence.pages = std::move(*pages);
  sequence.state_slot = *slot;
  sequence.phase = Phase::prefill;
  backend_.zero_state(*slot);
}

Batch EngineCore::build_batch(const Schedule& schedule) const {
  Batch batch;
  std::vector<int32_t> positions;
  for (const ScheduledRows& piece : schedule.rows) {
    const Sequence& s = *live_[static_cast<size_t>(piece.sequence)];
    const int32_t end = s.cached + piece.rows;
    const int32_t pages = KvPool::pages_for(end);
    batch.sequences.push_back({.row_begin = batch.rows(),
                               .row_count = piece.rows,
                               .kv_begin = s.cached,
                               .page_begin = static_cast<int32_t>(batch.pages.size()),
                               .page_count = pages,
                               .state_in = s.state_slot,
                               .state_out = s.state_slot,
                               .arithmetic = piece.arithmetic});
    batch.pages.insert(batch.pages.end(), s.pages.begin(), s.pages.begin() + pages);
    for (int32_t i = s.cached; i < end; ++i) {
      const bool in_prompt = i < s.prompt_size();
      batch.tokens.push_back(in_prompt ? s.request.prompt[static_cast<size_t>(i)]
                                       : s.generated[static_cast<size_t>(i - s.prompt_size())]);
      positions.push_back(i);
    }
    if (end >= s.prompt_size()) batch.logit_rows.push_back(batch.rows() - 1);
  }
  for (int axis = 0; axis < 3; ++axis)  // text: t, h and w are equal
    batch.positions.insert(batch.positions.end(), positions.begin(), positions.end());
  return batch;
}

void EngineCore::absorb(const Schedule& schedule, const HeadOutput& output) {
  const size_t vocab = static_cast<size_t>(config_.vocab_rows);
  size_t logit_row = 0;
  for (const ScheduledRows& piece : schedule.rows) {
    Sequence& s = *live_[static_cast<size_t>(piece.sequence)];
    s.cached += piece.rows;
    if (s.cached < s.prompt_size()) continue;
    s.phase = Phase::decode;
    advance(s, output.logits.subspan(logit_row * vocab, vocab));
    ++logit_row;
  }
}

void EngineCore::advance(Sequence& sequence, std::span<const float> logits) {
  const SequenceRequest& request = sequence.request;
  const auto position = static_cast<uint64_t>(sequence.prompt_size() + sequence.generated_size());
  auto sampled = sampler_.sample(logits, request.sampling, {request.prompt, sequence.generated},
                                 position, next_mask(sequence));
  if (!sampled.ok()) {
    finish(sequence, FinishReason::error, {.error = sampled.error().message});
    return;
  }
  SampledToken& next = sampled.value();
  const int32_t token = next.token;
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
    finish(sequence, FinishReason::stop, {.stop_token = token});
    return;
  }
  const auto stop = request.constraint ? request.constraint->accept({&token, 1}) : std::nullopt;
  if (stop != size_t{0}) {
    sequence.generated.push_back(token);
    NewTokens event{.id = request.id, .tokens = {token}, .logprobs = {}};
    if (next.logprobs) event.logprobs.push_back(std::move(*next.logprobs));
    events_.emplace_back(std::move(event));
  }
  if (stop)
    finish(sequence, finish_reason_of(*request.constraint));
  else if (sequence.generated_size() >= request.max_tokens)
    finish(sequence, FinishReason::length);
}

std::span<const uint32_t> EngineCore::next_mask(Sequence& sequence) {
  const SequenceRequest& request = sequence.request;
  const bool too_early = sequence.generated_size() < request.min_tokens;
  if (!request.constraint && !too_early) return {};
  mask_ = Sampler::all_sampleable(config_.vocab_rows);
  if (request.constraint) request.constraint->mask({}, mask_);
  if (too_early)
    for (const int32_t token : request.stop_ids)
      if (token >= 0 && token < config_.vocab_rows)
        mask_[static_cast<size_t>(token) / 32] &= ~(1U << (static_cast<uint32_t>(token) % 32));
  return mask_;
}

void EngineCore::finish(Sequence& sequence, FinishReason reason, Finished details) {
  details.id = sequence.request.id;
  details.reason = reason;
  details.prompt_tokens = sequence.prompt_size();
  details.completion_tokens = sequence.generated_size() + (details.stop_token >= 0 ? 1 : 0);
  finished_.push_back(details.id);
  events_.emplace_back(std::move(details));
}

void EngineCore::release(Sequence& sequence) {
  if (sequence.phase == Phase::waiting) return;
  if (settings_.integrity == IntegrityChecks::every_step) {
    for (const int32_t page : sequence.pages) backend_.poison_page(page);
    backend_.poison_state(sequence.state_slot);
  }
  kv_pool_.release(sequence.pages);
  state_pool_.release(sequence.state_slot);
}

void EngineCore::drop_finished() {
  if (finished_.empty()) return;
  std::erase_if(live_, [&](const std::unique_ptr<Sequence>& s) {
    if (std::ranges::find(finished_, s->request.id) == finished_.end()) return false;
    release(*s);
    return true;
  });
  finished_.clear();
}

void EngineCore::check_integrity() const {
  std::vector<int32_t> pages;
  std::vector<int32_t> slots;
  for (const auto& s : live_) {
    pages.insert(pages.end(), s->pages.begin(), s->pages.end());
    if (s->phase != Phase::waiting) slots.push_back(s->state_slot);
    CHECK(static_cast<int32_t>(s->pages.size()) >= KvPool::pages_for(s->cached), "sequence ",
          s->request.id, " caches ", s->cached, " tokens in ", s->pages.size(), " pages");
  }
  kv_pool_.check_integrity(pages);
  state_pool_.check_integrity(slots);
}

}  // namespace nibble
