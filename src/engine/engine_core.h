// EngineCore: the serving loop without its thread: one step = schedule, one forward pass, sample,
// publish. Where nothing but decoding goes on and the backend can, a step leaves its pass under
// way, and the next step begins another one before it reads the tokens (engine_ahead.cc).
// Deterministic: the same calls and the same clock give the same events; the tokens do not depend
// on the clock at all.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/slow_constraint.h"
#include "engine/cache/sequence_memory.h"
#include "engine/media_encoder.h"
#include "engine/messages.h"
#include "engine/sample/drafter.h"
#include "engine/sample/row_sampler.h"
#include "engine/sample/sampler.h"
#include "engine/schedule/scheduler.h"
#include "engine/sequence.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble {

/// at_idle: pools are checked whenever nothing is live. every_step: after each step too, and freed
/// pages and slots are filled with NaN.
enum class IntegrityChecks : uint8_t { off, at_idle, every_step };

struct EngineSettings {
  PoolSizes pools;                                // what the backend has reserved
  std::optional<ReservedBytes> planned;           // what it must hold then; absent: by its formulas
  int32_t sequences_max = 1;                      // running at once
  int32_t context_max = 0;                        // prompt + generated tokens of one sequence
  int32_t waiting_max = 1024;                     // sequences that wait, and
  int64_t waiting_tokens_max = int64_t{1} << 22;  // prompt tokens of these, at most
  CacheMode cache = CacheMode::exact;
  int32_t chunk_tokens_max = 0;  // prompt rows of one pass, rounded up to 64; 0: what fits
  double step_ms = 75.0;         // time budget of a pass while others wait for their next token
  /// Speculation, with pools.replay_rows drafted rows at most in a pass (the newest token's among
  /// them). Empty: none. Outputs do not depend on it.
  std::shared_ptr<Drafter> drafter;
  /// Without a drafter: tokens that the backend's own layer drafts at most, 1 to pools.replay_rows
  /// - 1; 0: none.
  int32_t model_drafts = 0;
  /// Where the text has said its last so many tokens before, what came then is drafted instead of
  /// the model's drafts, if that is likely to save more time; 0 turns this off.
  int32_t repeat_match = 0;
  /// For benchmarks of random weights, whose drafts are all wrong: the share of rounds whose first
  /// i + 1 drafts count as right. Outputs depend on it. Empty: they are compared.
  std::vector<double> synthetic_acceptance;
  int32_t long_prompt_tokens = 32 * 1024;  // prompts with more to compute have a share of their own
  int sampling_threads = 1;  // threads, the engine's own included; 0: one per usable core
  /// The time that the choices of a pass wait for masks while its layers compute. Nearly all are
  /// there before these have been computed; without one a sequence starts again.
  double mask_patience_ms = 20.0;
  IntegrityChecks integrity = IntegrityChecks::off;
  std::function<double()> clock_ms;  // monotonic; empty: the steady clock
};

/// Counts since the start, for tests and metrics.
struct EngineCounters {
  int64_t passes = 0;
  int64_t passes_ahead = 0;  // those that began before the tokens of the pass before were read
  int64_t rows_in_vain = 0;  // rows of sequences that ended before their tokens were read
  int64_t masks_late = 0;  // sequences started again, since a mask did not come during such a pass
  int64_t swaps_out = 0;
  int64_t swaps_in = 0;
  int64_t recomputes = 0;    // begun again: preempted with no room in host memory, or masks_late
  int64_t sat_out = 0;       // scheduled rows for which no page could be had
  int64_t not_finite = 0;    // sequences ended by NaN or infinity
  int64_t expired = 0;       // sequences ended by their deadline
  int64_t draft_rounds = 0;  // passes of a sequence with drafts
  int64_t drafted = 0;       // tokens proposed and computed, and
  int64_t drafts_right = 0;  // those that the model agreed with
  /// Right ones by their place in a round; those after the last place are not counted here.
  std::array<int64_t, 16> right_at = {};
  /// drafted and drafts_right, by Proposer.
  std::array<int64_t, kProposers> drafted_by = {};
  std::array<int64_t, kProposers> right_by = {};
  int64_t drafts_refused = 0;  // tokens proposed that a constraint refused, or after such a token
  int64_t drafts_ended = 0;    // sequences that stopped drafting at numbers that are not finite
  int64_t sampled_here = 0;    // rows whose token was chosen from logits on the host, and
  int64_t sampled_there = 0;   // by the backend
};

class EngineCore {
 public:
  /// `backend` must have reserved settings.pools and must outlive the core.
  EngineCore(Backend& backend, ModelConfig config, Sampler sampler, const EngineSettings& settings);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  /// Succeeds if a request could ever run. Errors: invalid_argument (empty prompt, an id outside
  /// the vocabulary, max_tokens < 1, longer than the context), no_memory (more pages than exist).
  Result<void> admissible(const SequenceRequest& request) const;

  /// Queues an admissible request whose id is not live.
  void submit(SequenceRequest request);
  /// Ends a live sequence, whatever its phase; an unknown id is ignored (it may just have ended).
  void cancel(uint64_t id);
  void cancel_all();

  bool idle() const { return live_.empty(); }
  int32_t live_count() const { return static_cast<int32_t>(live_.size()); }

  /// One pass over what the scheduler chose; nothing if idle. Returns every event since the last.
  std::vector<EngineEvent> step();

  /// Milliseconds until a prompt of this size, submitted at the last step, would see its first
  /// token.
  double first_token_ms(int32_t prompt_size) const;

  /// Prompt tokens of sequences that have not started.
  int64_t waiting_tokens() const;

  /// Live sequences, by Phase.
  std::array<int64_t, 4> count_phases() const;

  /// For tests: a running sequence is swapped out before the next pass, whatever the scheduler
  /// says.
  void preempt(uint64_t id);

  /// For tests: what is drafted for a live sequence, and after how many generated tokens.
  struct Drafts {
    int32_t after = -1;
    std::vector<int32_t> tokens;
    Proposer by = Proposer::text;
  };
  Drafts drafts(uint64_t id) const;

  /// The phase of a live sequence.
  Phase phase(uint64_t id) const;

  double now_ms() const { return settings_.clock_ms(); }
  const EngineCounters& counters() const { return counters_; }
  /// Forgets what is cached of prompts and media. Without live sequences.
  void forget_caches();
  MediaCounters media_counters() const { return media_.counters(); }
  /// The rows that hold encoded media.
  const MediaCache& media_cache() const { return media_.cache(); }
  SequenceMemory& memory() { return memory_; }
  const SequenceMemory& memory() const { return memory_; }
  /// CHECKs that every page and slot is owned by exactly the live sequences and the cache.
  void check_integrity() const;

 private:
  Result<void> admissible_media(const SequenceRequest& request) const;
  Result<void> admissible_rows(const MediaRows& media) const;
  void place_media(SequenceRequest& request) const;

  using Sequences = std::vector<std::unique_ptr<Sequence>>;  // in order of arrival
  /// One sequence's part of a pass.
  struct Part {
    Sequence* sequence = nullptr;  // null: it has ended or begun again since, and its rows are void
    int32_t begin = 0;             // tokens before its first row
    int32_t rows = 0;
    int32_t logit_rows = 0;  // the last rows, whose logits are wanted
    bool drafted = false;    // its rows are the newest token and drafts
    std::vector<TakenSnapshot> snapshots;
    /// The choice of the token after its last row, or after each drafted one, and the tokens that
    /// may be chosen there; no masks: all.
    std::vector<TokenChoice> choices;
    std::vector<std::vector<uint32_t>> masks;
  };
  /// Rows of rows_ that one sequence may advance by.
  struct Sampled {
    Sequence* sequence = nullptr;
    size_t row_begin = 0;
    size_t row_count = 0;
  };
  enum class Life : uint8_t { goes_on, over };
  struct Pass {
    Batch batch;
    std::vector<Part> parts;
    PassShape shape;
    double begin_ms = 0.0;  // when its device could begin, by what the host knows
    int32_t ahead = 0;      // passes since the scheduler was asked
  };

  /// The time between looks for masks that others make, where nothing else can run.
  static constexpr std::chrono::microseconds kMaskWait{100};

  /// Each of these is one step; false: the device is lost, and every sequence has ended.
  bool step_in_order(double now_ms);
  bool step_ahead(double now_ms);
  /// The layers of a pass have begun. Its tokens are read, unless the next pass may begin first.
  bool finish_pass(Pass pass, Residual h, double now_ms);
  bool take_tokens(const Pass& pass, const HeadOutput& output, double now_ms);
  bool may_stay_under_way(const Pass& pass) const;
  bool nobody_else_can_run(const Pass& pass) const;
  std::optional<Pass> pass_after(const Pass& pass, double now_ms);
  bool is_followed(const Sequence& sequence) const;
  bool may_be_forced(const Sequence& sequence) const;
  void append_carried(Pass& pass, Sequence& sequence, size_t row);
  void await_masks(Pass& pass, double now_ms);
  void show_live();

  void choose_candidates();
  bool waits_for_twin(const Sequence& sequence) const;
  /// Begins to make the masks that a sequence needs for its next pass.
  static SlowConstraint::Next ask_for_masks(const Sequence& sequence);
  bool waits_for_mask(const Sequence& sequence);
  SequenceView view_of(const Sequence& sequence) const;
  FreeResources free_resources() const;
  void end_expired(double now_ms);
  void refresh_matches();
  void carry_out(const Schedule& schedule, double now_ms);
  void swap_out_or_restart(Sequence& sequence, double now_ms);
  void restart(Sequence& sequence, double now_ms);
  Pass build_pass(const Schedule& schedule, double now_ms);
  void append(Pass& pass, Sequence& sequence, const ScheduledRows& piece, double now_ms);
  /// Its place in a batch, with rows for the tokens [begin, end) and its page table.
  static BatchSequence& append_sequence(Batch& batch, const Sequence& sequence, int32_t begin,
                                        int32_t end);
  void append_tokens(Batch& batch, const Sequence& sequence, int32_t end);
  void append_media(Batch& batch, const Sequence& sequence, size_t medium, int32_t end) const;
  void encode(const PassShape& pass);
  static void set_positions(Pass& pass);
  static TokenChoice choice_of(const Sequence& sequence, size_t drafted);
  enum class DraftWas : uint8_t { wrong, right };
  void draft();
  int32_t count_decoding() const;
  int32_t draft_room(const Sequence& sequence, int32_t unread) const;
  static bool drafts_due(const Sequence& sequence, int32_t room);
  static bool finds_forced(const Sequence& sequence, int32_t room);
  static void forget_drafts(Sequence& sequence);
  std::vector<int32_t> repeated(Sequence& sequence, int32_t room) const;
  void draft_from_grammar(Sequence& sequence, int32_t room);
  void draft_from_text(Sequence& sequence, int32_t room);
  struct WantedDrafts {
    Sequence* sequence = nullptr;
    int32_t count = 0;
  };
  bool may_draft_by_model(const Sequence& sequence, int32_t unread) const;
  bool drafts_follow(const Pass& pass) const;
  void find_drafts_late();
  bool finds_drafts(Sequence& sequence, int32_t room, int32_t decoding) const;
  int32_t drafts_wanted(Sequence& sequence, int32_t room, int32_t decoding);
  void cut_steps(std::vector<WantedDrafts>& wanted, int32_t decoding) const;
  void add_trials(std::vector<WantedDrafts>& wanted, int32_t decoding) const;
  void end_trial(Sequence& sequence, DraftWas was);
  void draft_by_model(std::vector<WantedDrafts>& wanted, int32_t decoding);
  static void append_draft(DraftBatch& batch, const Sequence& sequence, int32_t count);
  void take_model_drafts(Sequence& sequence, std::span<const int32_t> tokens);
  static void take_drafts(Sequence& sequence, Proposer by, std::span<const int32_t> fit);
  static std::span<const int32_t> before_stop(const Sequence& sequence,
                                              std::span<const int32_t> tokens);
  std::span<const int32_t> fitting(const Sequence& sequence, std::span<const int32_t> tokens);
  void count_drafts(Sequence& sequence, size_t drafted, size_t right);
  void learn(Sequence& sequence, Proposer by, DraftWas was);
  int32_t wanted_logits(const Sequence& sequence, int32_t rows) const;
  /// Takes in what the pass computed; the rows to sample, in the order of `sampled_`.
  void absorb(const Pass& pass, const HeadOutput& output, double now_ms);
  void add_sample_rows(const Part& part, const HeadOutput& output, size_t row_begin);
  void accept(const Sampled& sampled);
  /// True if draft `index` of the round that began with `generated` tokens is right.
  bool draft_is_right(const Sequence& s, size_t index, int32_t generated) const;
  void tell_progress(Sequence& s, double pass_begin_ms);
  Result<void> publish_prompt_logprobs(Sequence& sequence, int32_t row_begin,
                                       std::span<const float> logits);
  /// Applies constraint and stops, publishes; ends the sequence when it is over.
  Life advance(Sequence& sequence, Result<SampledToken>& sampled);
  void make_choices(Pass& pass);
  std::vector<uint32_t> next_mask(const Sequence& sequence, std::span<const int32_t> drafted) const;
  bool end_if_lost();
  void end_not_finite(Sequence& sequence, std::string error);
  void finish(Sequence& sequence, FinishReason reason, Finished details = {});
  void drop_finished();

  Backend& backend_;
  ModelConfig config_;
  RowSampler sampler_;
  EngineSettings settings_;
  SequenceMemory memory_;
  Scheduler scheduler_;
  MediaEncoder media_;
  Sequences live_;
  std::optional<Pass> under_way_;  // its head was begun, and its tokens are not read
  // The sequences that the scheduler may choose from in this step, and how it sees them.
  std::vector<Sequence*> candidates_;
  std::vector<SequenceView> views_;
  std::unordered_multimap<uint64_t, const Sequence*> computing_;  // by prompt_hash
  std::vector<SampleRow> rows_;
  std::vector<Sampled> sampled_;
  std::vector<uint64_t> finished_;
  std::vector<uint64_t> to_preempt_;
  std::vector<EngineEvent> events_;
  uint64_t submitted_ = 0;
  uint64_t scheduled_ = 0;  // submissions that the scheduler knew when it was asked last
  size_t next_refresh_ = 0;
  double drafting_ms_ = 0.0;  // time that drafting took in this step
  /// The chance of a draft, given that those before it were right, as all sequences tell: a new one
  /// begins with it. At first even for texts; for models that of published layers, a little lower;
  /// for grammars a guess, most of whose errors are last tokens that join with what follows.
  /// Beside a model only long repeats of a text count, which begin with high odds.
  std::array<double, kProposers> shared_odds_;
  double shared_trials_ = DraftTrials::kShareMost;  // share of trials, as all sequences tell
  bool masks_awaited_ = false;                      // by a sequence that would run otherwise
  double mean_output_tokens_ = 128.0;  // mean of recent answers; assumed before the first
  EngineCounters counters_;
};

}  // namespace nibble
