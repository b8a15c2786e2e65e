// The steps that serve, run and chat share: from a folder and flags to a loaded model, a memory
// plan and engine settings.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/image_options.h"
#include "cli/serving/model_on_machine.h"
#include "cli/serving/speculation.h"
#include "engine/engine.h"
#include "plan/memory_plan.h"

namespace nibble {

// Rows for a verb's option table, as kEngineOptions.
inline constexpr Option kMaxModelLenOption = {
    "max-model-len", "N|auto[:SEQS]", "auto",
    "longest prompt + answer in tokens; auto: what fits, auto:4: four times at once"};
inline constexpr Option kMemoryShareOption = {
    "gpu-memory-utilization", "SHARE", "0.9",
    "share of the card's memory for this process: what weights and workspace leave becomes caches "
    "(on a CPU: of the memory that is available, of which caches take what they need)",
    "device-memory-utilization"};
inline constexpr Option kKvCacheBytesOption = {
    "kv-cache-memory-bytes", "N", "",
    "bytes for the pages of the KV cache; default: what is left, on a CPU by need"};
inline constexpr Option kMaxBatchedTokensOption = {
    "max-num-batched-tokens", "N", "",
    "rows of one pass, prompt chunks and decoding sequences; default: 512, on a card by its "
    "memory up to 8192; at least --max-num-seqs + 64"};
inline constexpr Option kStepDeadlineOption = {
    "step-deadline", "SECONDS", "",
    "a pass that takes longer will not end: every request gets that error and the exit code is 3; "
    "0: never; default: 60, on a CPU 600"};
inline constexpr std::array kEngineOptions = {
    kMaxModelLenOption,       kKvCacheBytesOption, kMemoryShareOption,
    kMaxBatchedTokensOption,  kSpeculativeOption,  kSpeculationOption,
    kDraftQuantizationOption, kTokenMapOption,     kStepDeadlineOption};

// The verbs that answer many requests have this row.
inline constexpr Option kMaxSequencesOption = {
    "max-num-seqs", "N|auto", "auto",
    "sequences computed at once, more wait; auto: on a card by its memory, 4 to 64, on a CPU 16"};

// Rows for a server's, as kServingOptions; the others take their defaults.
inline constexpr Option kPrefixCachingOption = {"enable-prefix-caching", "", "true",
                                                "prompts that begin alike are computed once"};
inline constexpr Option kCacheModeOption = {
    "cache-mode", "exact|fast", "exact",
    "exact: an answer never depends on what ran before; fast: generated text is reused too"};
inline constexpr Option kSnapshotsOption = {
    "prefix-snapshots", "N", "",
    "states kept for the prefix cache; default: by memory, on a CPU two per sequence"};
inline constexpr Option kHostCacheOption = {
    "host-cache-memory-bytes", "N", "",
    "host memory for swapped sequences and the second tier of the prefix cache and of encoded "
    "images; default: as the plan says, at most 4G"};
inline constexpr Option kStepTimeOption = {
    "step-time-budget", "MS", "75",
    "milliseconds of one pass while sequences wait for their next token"};
inline constexpr Option kLongPromptOption = {
    "long-prefill-token-threshold", "N", "32768",
    "prompts with more tokens to compute share 40 % of prefill time when there are others"};

// Rows for the vision tower's memory, as kTowerOptions, of verbs that take images and of `plan`.
inline constexpr Option kNoVisionOption = {
    "no-vision", "", "false",
    "leaves the vision tower out: images are refused, and its memory is free",
    "language-model-only"};
inline constexpr Option kImageTokensOption = {
    "max-image-tokens", "N", "",
    "tokens of the largest image, for which the vision tower has memory; larger ones are scaled "
    "down to it; default: 1,024 on a CPU; on a card the tower is loaded where this is given"};
inline constexpr Option kEncoderCacheOption = {
    "encoder-cache-memory-bytes", "N", "",
    "memory for images that are encoded, so that they are not encoded again; default: eight of "
    "the largest"};

inline constexpr std::array kServingOptions = {kPrefixCachingOption, kCacheModeOption,
                                               kSnapshotsOption,     kHostCacheOption,
                                               kStepTimeOption,      kLongPromptOption};
inline constexpr std::array kTowerOptions = {kNoVisionOption, kImageTokensOption,
                                             kEncoderCacheOption};

struct EngineSetup {
  LoadedModel model;
  MemoryPlan plan;
  CacheMode cache = CacheMode::exact;
  double step_ms = 75.0;
  int32_t long_prompt_tokens = 32 * 1024;
  int sampling_threads = 0;                          // as --threads
  std::chrono::duration<double> step_deadline{0.0};  // as Engine::Options
  std::shared_ptr<Drafter> drafter;
  int32_t model_drafts = 0;                  // as EngineSettings
  int32_t repeat_match = 0;                  // likewise
  std::vector<double> synthetic_acceptance;  // likewise
  std::string speculation;                   // a line for people: what is drafted, or why not
  EngineSettings settings() const;
};

/// serving: sequences share a prefix cache and a host tier. single: the engine of one conversation
/// keeps only its own states.
enum class EngineUse : uint8_t { single, serving };

/// none: drafts only if a flag asks for them. where_it_pays: also with the checkpoint's MTP layer,
/// on a card, if the plan loses no request of full length.
enum class DefaultDrafts : uint8_t { none, where_it_pays };

struct EngineNeeds {
  EngineUse use = EngineUse::single;
  DefaultDrafts drafts = DefaultDrafts::none;
  TowerUse tower = TowerUse::unused;         // wanted: unless kTowerOptions leave it out
  std::optional<int32_t> sequences_max = 1;  // absent: as the machine allows
  Terminal* terminal = nullptr;              // shows a person how far loading is
};

/// The tower that requests within these limits need.
inline TowerUse tower_for(const ImageFlags& images) {
  const MediaMost most = images.intake.most();
  return most.images > 0 || most.videos > 0 ? TowerUse::wanted : TowerUse::unused;
}

/// --max-num-seqs: a number, or nothing for auto. Errors: invalid_argument.
Result<std::optional<int32_t>> read_sequences(const Arguments& arguments);

/// --gpu-memory-utilization: above 0, at most 1. Errors: invalid_argument.
Result<double> read_memory_share(const Arguments& arguments);

/// Reads the values of the rows above and of model_loader.h, all of them, and nothing else. Errors:
/// a line for each value that an option cannot have.
Result<void> check_engine_flags(const Arguments& arguments, const EngineNeeds& needs);

/// The memory that the rows above ask for there: what plan_memory takes. Errors: invalid_argument.
Result<MemoryRequest> memory_request(const Arguments& arguments, const EngineNeeds& needs,
                                     const ModelOnMachine& model);

/// plan_memory, with the workspace that reserve() takes for exactly the pools of the plan: what is
/// left of that of the largest pass stays free. Errors: those of plan_memory.
Result<MemoryPlan> plan_on_machine(const MemoryRequest& request, const ModelOnMachine& model);

/// Loads the model and plans its memory from the rows above and those of model_loader.h. `serving`
/// reads the server's rows too.
Result<EngineSetup> set_up_engine(const Arguments& arguments, const std::filesystem::path& folder,
                                  const EngineNeeds& needs);

/// Ends a verb with `code` or, if its engine has failed, with kExitDevice and a message.
Result<int> end_of_verb(std::string_view verb, const Result<void>& failure, Result<int> code,
                        Terminal& terminal);

/// Memory this process may take, now: what the system has available, within its control group.
int64_t available_memory_bytes();

}  // namespace nibble
