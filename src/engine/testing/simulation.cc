// One life: a random engine, random clients, an oracle.
#include "engine/testing/simulation.h"

#include <algorithm>
#include <map>
#include <random>

#include "engine/engine_core.h"
#include "engine/testing/drafter_of.h"
#include "engine/testing/simulated_text.h"
#include "engine/testing/simulation_media.h"
#include "engine/testing/simulation_settings.h"

namespace nibble {
namespace {

class Life {
 public:
  Life(uint64_t seed, SimulationCounts& counts);
  std::string run(int64_t steps_min);

 private:
  /// A sequence as its client sees it, with the model's own continuation beside it.
  struct Client {
    SequenceRequest request;  // a copy without constraint
    SimulatedText text;
    bool cancelled = false;
    int64_t born_step = 0;
    uint64_t twin = 0;       // an earlier one with the same prompt and salt, or 0
    uint64_t text_hash = 5;  // of its tokens so far, without any arithmetic
    int32_t text_size = 0;
  };

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<int>(values.size()) - 1)];
  }

  uint64_t twin_of(const SequenceRequest& request) const;
  bool is_late(const Client& client) const {
    const double deadline = client.request.urgency.deadline_ms;
    return deadline > 0.0 && step_ms_ >= deadline;
  }
  bool sees() const { return settings_.pools.media_rows > 0; }  // prompts may wait for images
  int64_t prefills() const { return core_->count_phases()[static_cast<size_t>(Phase::prefill)]; }
  std::vector<int32_t> random_tokens(int count);
  SequenceRequest random_request();
  void submit();
  void constrain(SequenceRequest& request, Client& client);
  void cancel_one();
  void cancel(std::map<uint64_t, Client>::iterator chosen);
  void step();
  void check_promises(int64_t prefills_before);
  /// The texts before a step, for which something may have been drafted in it.
  using Texts = std::map<uint64_t, SimulatedText>;
  Texts texts_that_draft() const;
  void check_drafts(const Texts& before);
  void preempt_one();
  /// Proposes the tokens with which a client's text will continue or, by chance, others.
  void propose(const Sequence& sequence, int32_t count_max, std::vector<int32_t>& drafts);
  void take(const std::vector<EngineEvent>& events);
  void take(const NewTokens& fresh);
  void take(const Finished& end);
  int32_t expected_token(const Client& client) {
    return client.text.next(oracle_sampler_, client.request);
  }
  void add_to_text(Client& client, int32_t token);
  bool only_others_have(const Client& client) const;
  void drain();
  void collect_counts();
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = concat("step ", step_, ": ", what, "; ", description());
  }
  std::string description() const {
    return concat("sequences ", settings_.sequences_max, ", pages ", settings_.pools.pages,
                  ", slots ", settings_.pools.state_slots, ", host pages ",
                  settings_.pools.host_pages, ", host slots ", settings_.pools.host_slots,
                  ", cache mode ", static_cast<int>(settings_.cache), ", NaN every ",
                  model_.nan_every, ", failing ", failure_chance_);
  }

  std::mt19937_64 random_;
  SimulationCounts& counts_;
  EngineSettings settings_;
  FakeBackend::Model model_;
  FakeBackend backend_;
  Sampler oracle_sampler_;
  std::unique_ptr<EngineCore> core_;
  double now_ms_ = 1.0;
  double step_ms_ = 1.0;   // when the step began
  double draft_ms_ = 0.0;  // of a draft of the model: those that cost more than a pass never pay
  double failure_chance_ = 0.0;
  double draft_right_chance_ = 0.0;
  int64_t failures_ = 0;
  int64_t rows_ = 0;         // computed until the step before
  int64_t prompt_rows_ = 0;  // likewise
  int64_t drafted_ = 0;      // likewise
  int64_t step_ = 0;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;
  std::vector<std::vector<int32_t>> texts_;  // finished conversations to continue
  /// (salt, hash of a whole-page prefix) -> sequences that computed or took it.
  std::map<std::pair<uint64_t, uint64_t>, int> seen_;
  MediaReaders readers_;
  std::string failure_;
};

constexpr int kPromptMost = 420;
constexpr int kOutputMost = 150;
/// No sequence lives longer: at most ten run and a few dozen wait.
constexpr int64_t kStepsOfOneLife = 20000;

Life::Life(uint64_t seed, SimulationCounts& counts)
    : random_(seed),
      counts_(counts),
      settings_(random_settings(random_)),
      model_(random_model(settings_, random_)),
      backend_(model_),
      oracle_sampler_(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)) {
  settings_.clock_ms = [this] { return now_ms_; };
  if (settings_.pools.replay_rows > 0 && settings_.model_drafts == 0)
    settings_.drafter = std::make_shared<DrafterOf>(
        [this](const Sequence& s, int32_t most, std::vector<int32_t>& d) { propose(s, most, d); });
  draft_right_chance_ = one_of({0.0, 0.5, 0.9, 1.0});
  if (settings_.model_drafts > 0) draft_ms_ = one_of({0.0, 4.0, 60.0});
  backend_.on_draft = [this](int steps) { now_ms_ += steps * draft_ms_; };
  const auto reserved = backend_.reserve(settings_.pools);
  CHECK(reserved.ok(), "the fake model reserves");
  core_ = std::make_unique<EngineCore>(
      backend_, sees() ? FakeBackend::config_with_vision() : FakeBackend::config(),
      Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)), settings_);
  if (chance(0.3)) failure_chance_ = one_of({0.01, 0.1, 0.4});
  core_->memory().fail_allocations([this] {
    const bool fails = failure_chance_ > 0.0 && chance(failure_chance_);
    failures_ += fails ? 1 : 0;
    return fails;
  });
}

std::vector<int32_t> Life::random_tokens(int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = pick(0, FakeBackend::kVocab - 1);
  return tokens;
}

SequenceRequest Life::random_request() {
  SequenceRequest request;
  request.id = next_id_++;
  if (!texts_.empty() && chance(0.7)) {  // goes on where another was, or leaves it half-way
    request.prompt = texts_[static_cast<size_t>(pick(0, static_cast<int>(texts_.size()) - 1))];
    if (chance(0.4))
      request.prompt.resize(static_cast<size_t>(pick(1, static_cast<int>(request.prompt.size()))));
  }
  const bool twin = !clients_.empty() && chance(0.1);  // as the choices of one request
  if (twin) request.prompt = clients_.rbegin()->second.request.prompt;
  const int most = twin ? 0 : kPromptMost / 2;
  const auto fresh = random_tokens(pick(request.prompt.empty() ? 1 : 0, most));
  request.prompt.insert(request.prompt.end(), fresh.begin(), fresh.end());
  const int longest = std::min(kPromptMost, settings_.context_max - kOutputMost - 1);
  if (static_cast<int>(request.prompt.size()) > longest)
    request.prompt.resize(static_cast<size_t>(longest));
  if (twin) request.media = clients_.rbegin()->second.request.media;
  if (!twin && sees() && chance(0.5)) add_random_media(request, random_);
  request.max_tokens = pick(1, chance(0.3) ? kOutputMost : 20);
  request.sampling.temperature = chance(0.5) ? 0.0 : 1.0;
  request.sampling.seed = random_();
  if (chance(0.2)) request.sampling.top_k = pick(1, 6);
  if (chance(0.2)) request.sampling.top_p = one_of({0.1, 0.5, 0.9});
  if (chance(0.1)) request.sampling.min_p = 0.3;
  if (chance(0.1)) request.sampling.presence_penalty = one_of({-0.5, 0.5, 2.0});
  if (chance(0.1)) request.sampling.logit_bias = {{pick(0, 60), one_of({-100.0F, 1.0F})}};
  if (chance(0.2)) request.stop_ids = {pick(0, FakeBackend::kVocab - 1)};
  if (chance(0.5)) request.cache.boundaries = {pick(0, static_cast<int>(request.prompt.size()))};
  if (chance(0.05)) request.cache.pinned_tokens = pick(0, static_cast<int>(request.prompt.size()));
  request.urgency.tenant = static_cast<uint64_t>(pick(0, 2));
  if (chance(0.3)) request.cache.salt = 7 + request.urgency.tenant;
  if (twin) request.cache.salt = clients_.rbegin()->second.request.cache.salt;
  request.urgency.priority = chance(twin ? 0.6 : 0.2) ? pick(-1, 1) : 0;
  if (chance(0.06)) request.urgency.deadline_ms = now_ms_ + pick(1, 2000);
  return request;
}

void Life::submit() {
  SequenceRequest request = random_request();
  if (!core_->admissible(request).ok()) return;
  Client client{.request = copy_of(request),
                .text = SimulatedText(request, model_),
                .cancelled = false,
                .born_step = step_,
                .twin = twin_of(request)};
  for (const int32_t token : request.prompt) {
    add_to_text(client, token);
    if (client.text_size == kPageTokens && only_others_have(client)) ++counts_.apart_by_salt;
  }
  if (chance(0.3)) constrain(request, client);
  const auto placed = clients_.emplace(request.id, std::move(client)).first;
  core_->submit(std::move(request));
  if (!chance(0.02)) return;
  ++counts_.cancelled_at_once;
  cancel(placed);
}

void Life::constrain(SequenceRequest& request, Client& client) {
  if (chance(0.25)) {
    const RealGrammar grammar(pick(0, RealGrammar::kCount - 1));
    client.text.grammar = GrammarPlace(grammar);
    request.constraint = grammar.constraint();
    request.stop_ids = client.request.stop_ids = {RealGrammar::kEnd};
    return;
  }
  const uint64_t key = random_() / 2;
  client.text.grammar = GrammarPlace(FakeGrammar::Place(key));
  // A prompt that sits out for a mask needs no rows, which drafts may have then.
  request.constraint = std::make_unique<FakeGrammar>(key, settings_.pools.replay_rows > 0
                                                              ? FakeGrammar::Masks::in_time
                                                              : FakeGrammar::Masks::late);
}

/// The last one with this prompt, if its salt is the same too.
uint64_t Life::twin_of(const SequenceRequest& request) const {
  if (clients_.empty()) return 0;
  const SequenceRequest& last = clients_.rbegin()->second.request;
  const bool same = last.prompt == request.prompt && last.cache.salt == request.cache.salt;
  return same ? last.id : 0;
}

void Life::cancel_one() {
  if (clients_.empty()) return;
  auto chosen = std::next(clients_.begin(), pick(0, static_cast<int>(clients_.size()) - 1));
  if (!chosen->second.cancelled) cancel(chosen);
}

void Life::cancel(std::map<uint64_t, Client>::iterator chosen) {
  chosen->second.cancelled = true;
  switch (core_->phase(chosen->first)) {
    case Phase::waiting:
      ++counts_.cancelled_waiting;
      break;
    case Phase::prefill:
      ++counts_.cancelled_prefill;
      break;
    case Phase::decode:
      ++counts_.cancelled_decode;
      break;
    case Phase::swapped:
      ++counts_.cancelled_swapped;
      break;
  }
  core_->cancel(chosen->first);
}

void Life::preempt_one() {
  if (clients_.empty()) return;
  const auto at = pick(0, static_cast<int>(clients_.size()) - 1);
  core_->preempt(std::next(clients_.begin(), at)->first);
}

void Life::propose(const Sequence& sequence, int32_t count_max, std::vector<int32_t>& drafts) {
  const Client& client = clients_.at(sequence.request.id);
  SimulatedText text = client.text;
  const int32_t count = pick(0, count_max);
  while (std::ssize(drafts) < count && !text.prefix.is_nan()) {
    const int32_t right = text.next(oracle_sampler_, client.request);
    drafts.push_back(chance(draft_right_chance_) ? right : pick(0, FakeBackend::kVocab - 1));
    text.add(right);
  }
}

void Life::take(const NewTokens& fresh) {
  const auto found = clients_.find(fresh.id);
  if (found == clients_.end()) return fail(concat("tokens of unknown sequence ", fresh.id));
  Client& client = found->second;
  if (client.text.tokens.empty()) counts_.first_waits += step_ - client.born_step;
  if (client.cancelled) return fail(concat("a token of cancelled sequence ", fresh.id));
  if (client.text.tokens.empty() && client.twin != 0) {
    const auto twin = clients_.find(client.twin);
    if (twin != clients_.end() && !twin->second.cancelled && twin->second.text.tokens.empty() &&
        twin->second.request.urgency.priority > client.request.urgency.priority)
      ++counts_.twins_ahead;
  }
  for (const int32_t token : fresh.tokens) {
    ++counts_.tokens;
    if (client.text.prefix.is_nan())
      return fail(concat("a token after NaN in sequence ", fresh.id));
    const int32_t expected = expected_token(client);
    if (token != expected)
      return fail(concat("sequence ", fresh.id, " token ", client.text.tokens.size(), ": expected ",
                         expected, ", found ", token));
    if (client.text.grammar && client.text.grammar->is_real()) ++counts_.real_masked;
    client.text.add(token);
    if (settings_.cache == CacheMode::fast) add_to_text(client, token);
  }
}

/// Says if the text so far is in the books of other salts, and new in those of its own.
bool Life::only_others_have(const Client& client) const {
  const auto seen = [&](uint64_t salt) {
    const auto found = seen_.find({salt, client.text_hash});
    return found == seen_.end() ? 0 : found->second;
  };
  int others = 0;
  for (const uint64_t salt : {0, 7, 8, 9})
    if (salt != client.request.cache.salt) others += seen(salt);
  return others > 0 && seen(client.request.cache.salt) == 1;
}

/// Remembers which whole-page prefixes the sequences of each salt may have computed.
void Life::add_to_text(Client& client, int32_t token) {
  client.text_hash = FakeBackend::mix(client.text_hash, static_cast<uint64_t>(token));
  if (++client.text_size % kPageTokens == 0) ++seen_[{client.request.cache.salt, client.text_hash}];
}

void Life::take(const Finished& end) {
  const auto found = clients_.find(end.id);
  if (found == clients_.end()) return fail(concat("end of unknown sequence ", end.id));
  Client client = std::move(found->second);
  clients_.erase(found);
  ++counts_.finished;
  const bool nan = client.text.prefix.is_nan();
  const int64_t said = std::ssize(client.text.tokens) + (end.stop_token >= 0 ? 1 : 0);
  if (end.completion_tokens != said)
    return fail(concat("sequence ", end.id, " counts ", end.completion_tokens, " of ", said));
  switch (end.reason) {
    case FinishReason::error:
      if (!nan) fail(concat("sequence ", end.id, " failed: ", end.error));
      return;
    case FinishReason::cancelled:
      if (!client.cancelled) fail(concat("sequence ", end.id, " was not cancelled"));
      break;
    case FinishReason::length:
      if (std::ssize(client.text.tokens) != client.request.max_tokens)
        fail(concat("sequence ", end.id, " ended after ", client.text.tokens.size()));
      break;
    case FinishReason::stop:
      if (nan || end.stop_token != expected_token(client))
        fail(concat("sequence ", end.id, " stopped at ", end.stop_token));
      break;
    case FinishReason::deadline:
      if (now_ms_ < client.request.urgency.deadline_ms)
        fail(concat("sequence ", end.id, " ended before its time limit"));
      break;
    default:
      break;
  }
  const auto hit = static_cast<size_t>(end.cached_tokens);
  if (hit % kPageTokens != 0 || hit >= client.request.prompt.size())
    return fail(concat("sequence ", end.id, " took ", hit, " tokens from the cache"));
  if (hit > 0) {
    uint64_t hash = 5;
    for (size_t i = 0; i < hit; ++i)
      hash = FakeBackend::mix(hash, static_cast<uint64_t>(client.request.prompt[i]));
    if (seen_[{client.request.cache.salt, hash}] < 2)  // itself and another
      fail(concat("sequence ", end.id, " took a prefix nobody of its salt had"));
  }
  if (said > 0 && !readers_.add(client.request, backend_.vision))
    fail(concat("sequence ", end.id, " read a medium that was encoded for another salt alone"));
  std::vector<int32_t> text = client.request.prompt;
  text.insert(text.end(), client.text.tokens.begin(), client.text.tokens.end());
  if (texts_.size() < 12)
    texts_.push_back(std::move(text));
  else
    texts_[static_cast<size_t>(pick(0, 11))] = std::move(text);
}

void Life::take(const std::vector<EngineEvent>& events) {
  for (const EngineEvent& event : events) {
    if (const auto* fresh = std::get_if<NewTokens>(&event)) take(*fresh);
    if (const auto* end = std::get_if<Finished>(&event)) take(*end);
  }
}

std::string Life::run(int64_t steps_min) {
  const double arrivals = one_of({0.03, 0.1, 0.3});
  const double cancels = one_of({0.0, 0.02, 0.1});
  const double preempts = one_of({0.0, 0.02, 0.2});
  for (; step_ < steps_min && failure_.empty(); ++step_) {
    if (clients_.size() < 24 && chance(arrivals)) submit();
    if (chance(cancels)) cancel_one();
    if (chance(preempts)) preempt_one();
    now_ms_ += pick(1, 40);
    step();
  }
  drain();
  collect_counts();
  return failure_;
}

void Life::step() {
  step_ms_ = now_ms_;
  for (const auto& [id, client] : clients_)
    if (!client.cancelled && is_late(client) && core_->phase(id) == Phase::swapped)
      ++counts_.deadlines_swapped;
  const int64_t prefills_before = prefills();
  const Texts before = texts_that_draft();
  take(core_->step());
  if (failure_.empty()) check_promises(prefills_before);
  if (failure_.empty()) check_drafts(before);
}

Life::Texts Life::texts_that_draft() const {
  Texts texts;
  if (settings_.pools.replay_rows == 0) return texts;
  for (const auto& [id, client] : clients_)
    if (!client.cancelled && !client.text.tokens.empty()) texts.emplace(id, client.text);
  return texts;
}

/// Outputs do not tell if a draft is what the text alone gives, entries and hidden rows apart, or
/// if it is what a grammar forces.
void Life::check_drafts(const Texts& before) {
  for (const auto& [id, text] : before) {
    if (clients_.find(id) == clients_.end()) continue;  // it ended
    const EngineCore::Drafts drafts = core_->drafts(id);
    if (drafts.after != std::ssize(text.tokens)) continue;
    const std::string fault = text.fault_of(drafts, model_);
    if (!fault.empty()) return fail(concat("sequence ", id, " ", fault));
    if (text.grammar && text.grammar->is_real()) counts_.real_drafts += std::ssize(drafts.tokens);
    if (drafts.by == Proposer::model) counts_.model_drafts += std::ssize(drafts.tokens);
  }
}

/// A step ends what is cancelled or late, and drafts leave a block of rows to a prompt that is
/// being computed, whether it takes them in this pass or not.
void Life::check_promises(int64_t prefills_before) {
  for (const auto& [id, client] : clients_) {
    if (client.cancelled) return fail(concat("cancelled sequence ", id, " lives on"));
    if (is_late(client)) return fail(concat("sequence ", id, " lives on after its time limit"));
  }
  const int64_t drafted = core_->counters().drafted;
  const bool prompt_went_on = backend_.prompt_rows_computed > prompt_rows_;
  if (prompt_went_on && drafted > drafted_) ++counts_.drafts_beside_prompts;
  const bool stands = !prompt_went_on && !sees() && prefills_before > 0 && prefills() > 0;
  const int64_t rows = backend_.rows_computed - rows_;
  if (stands && drafted > drafted_ && rows > settings_.pools.rows_max - kPageTokens)
    fail(concat("drafts took the rows of a prompt: ", rows));
  rows_ = backend_.rows_computed;
  prompt_rows_ = backend_.prompt_rows_computed;
  drafted_ = drafted;
}

void Life::drain() {
  failure_chance_ = std::min(failure_chance_, 0.05);
  for (; !core_->idle() && failure_.empty(); ++step_) {
    now_ms_ += 10;
    step();
    for (const auto& [id, client] : clients_)
      if (step_ - client.born_step > kStepsOfOneLife) fail(concat("sequence ", id, " starves"));
  }
  if (!failure_.empty()) return;
  if (!clients_.empty()) fail("the engine is idle and a client waits");
  core_->memory().cache().clear();
  const CachePools& pools = core_->memory().pools();
  if (pools.pages.free_count() != pools.pages.size() ||
      pools.slots.free_count() != pools.slots.size() ||
      pools.host_pages.free_count() != pools.host_pages.size() ||
      pools.host_slots.free_count() != pools.host_slots.size())
    fail("pages or slots are lost");
}

void Life::collect_counts() {
  counts_.add(*core_);
  const std::string contradiction = SimulationCounts::contradiction(*core_);
  if (!contradiction.empty()) fail(contradiction);
  counts_.steps += step_, counts_.rows += rows_, counts_.prompt_rows += prompt_rows_;
  counts_.allocation_failures += failures_;
  if (settings_.model_drafts > 0)
    counts_.repeated_drafts += core_->counters().drafted_by[static_cast<size_t>(Proposer::text)];
  counts_.media_apart += readers_.apart();
  constexpr auto kGrammar = static_cast<size_t>(Proposer::grammar);
  if (core_->counters().right_by[kGrammar] != core_->counters().drafted_by[kGrammar])
    fail("a forced draft was wrong");
}

}  // namespace

std::string simulate(uint64_t seed, int64_t steps_min, SimulationCounts& counts) {
  return Life(seed, counts).run(steps_min);
}

}  // namespace nibble
