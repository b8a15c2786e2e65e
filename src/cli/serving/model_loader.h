// Opens a checkpoint and puts a backend under it: what every verb that runs a model needs. The one
// place that knows the concrete backends.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/card/card_products.h"
#include "cli/drafts/draft_weights.h"
#include "cli/loading/thread_count.h"
#include "cli/loading/weight_places.h"
#include "cli/options/folders.h"
#include "cli/verb.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/config/rope_override.h"

namespace nibble {

/// judging: scores and comparisons, whose --activations auto is f32 on a CPU, so that they judge
/// the weights alone.
enum class ModelUse : uint8_t { serving, judging };

/// The MTP layer of a checkpoint. wanted: loaded if it is there and sound; else LoadedModel::notice
/// says why the model drafts nothing. by_default: loaded if it is likely to pay too, on a card;
/// else LoadedModel::no_drafts says why not.
enum class DraftLayer : uint8_t { unused, wanted, by_default };

/// The scales of FP8 pages: 1, or those that the checkpoint has.
enum class KvScales : uint8_t { unit, checkpoint };

/// The vision tower of a checkpoint. wanted, or wanted_on_cpu where that computes: loaded if
/// config.json describes one, it is there, and the backend runs one; else LoadedModel::notice says
/// why images are not taken.
enum class TowerUse : uint8_t { unused, wanted_on_cpu, wanted };

struct ModelRequest {
  std::filesystem::path folder;
  std::string backend;  // "auto", "cuda", "cpu" or "reference"
  /// Random weights; the folder then needs none. By name: as its config declares, or a
  /// WeightLayout.
  std::optional<std::string> dummy;
  std::optional<RopeOverride> rope;  // keys in place of config.json's
  BackendOptions options;
  KvScales kv_scales = KvScales::unit;
  bool direct_io = false;
  ProductsRequest wanted;   // products on a card
  ProductsChoice products;  // the same, once they are settled (load_model)
  ModelUse use = ModelUse::serving;
  DraftLayer draft_layer = DraftLayer::unused;
  TowerUse tower = TowerUse::unused;
  DraftWeights draft_weights = {};
  /// Makes the source of tensors that the weights are read from; empty: the checkpoint itself.
  std::function<std::unique_ptr<TensorSource>(const Checkpoint&)> reader = {};
};

/// The reason why nobody drafts by default with the MTP layer of this model on this backend; empty:
/// it is likely to pay.
std::string no_default_drafts(const ModelRequest& request, const std::string& backend,
                              const ModelConfig& config);

struct LoadedModel {
  std::unique_ptr<Checkpoint> checkpoint;  // null for random weights
  ModelConfig config;
  int64_t weight_bytes = 0;          // as the backend holds them; as stored if it keeps no account
  int64_t table_bytes = 0;           // rotary tables, likewise
  std::unique_ptr<Backend> backend;  // not yet reserved
  HostWeights host_weights;          // where they lie on a CPU
  std::string notice;                // a line for people about how it was loaded, or empty
  std::string no_drafts;             // why the MTP layer was not loaded by default
  int64_t draft_bytes = 0;  // the part of weight_bytes that is the MTP layer as loaded, about
};

// Rows for a verb's option table, as kModelOptions.
inline constexpr Option kBackendOption = {
    "backend", "auto|cuda|cpu|reference", "auto",
    "where it computes; auto is cuda where a usable card is, else cpu"};
inline constexpr Option kActivationsOption = {
    "activations", "auto|bf16|declared|f32|int8", "auto",
    "precision of activations; f32 is slow on a card and for tests; int8, the auto of serving on a "
    "CPU, has 8 bits where weights are NVFP4 and BF16 where they are FP8"};
inline constexpr Option kInputScalesOption = {
    "input-scales", "amax|four-over-six", "amax",
    "scales of 16 inputs that are rounded to 4 bits: amax / 6, or the better of amax / 6 and "
    "amax / 4"};
inline constexpr Option kKvCacheOption = {
    "kv-cache-dtype", "auto|bf16|fp8|turboquant_4bit_nc|nvfp4", "auto",
    "keys and values: auto is BF16 on a card (F32 under --activations f32) and F32 on a CPU; bf16; "
    "fp8 (or fp8_e4m3) is E4M3 with scale 1; turboquant_4bit_nc (rotated keys with their norm) and "
    "nvfp4 have 4 bits a number, for head sizes that are powers of two, and multiples of 16"};
inline constexpr Option kKvScalesOption = {"kv-scales", "unit|checkpoint", "unit",
                                           "with --kv-cache-dtype fp8: pages keep numbers divided "
                                           "by 1, or by the k_scale and v_scale that "
                                           "the checkpoint has of each attention layer"};
inline constexpr Option kStateOption = {
    "state-dtype", "f32|bf16", "f32",
    "the recurrent state: f32, or bf16 (half its memory and traffic), rounded after every token "
    "that is generated and every 64 of a prompt; also --mamba-ssm-cache-dtype",
    "mamba-ssm-cache-dtype"};
inline constexpr Option kLoadFormatOption = {
    "load-format", "NAME", "auto",
    "auto, safetensors and fastsafetensors read the weights; dummy makes random ones, stored as "
    "config.json declares; "
    "dummy:mixed, dummy:mixed-nvfp4-head, dummy:nvfp4, dummy:w4a4, dummy:bf16 in that layout"};
inline constexpr Option kDirectIoOption = {
    "direct-io", "", "false", "reads weights past the page cache (O_DIRECT), for a cold fast disk"};
inline constexpr Option kCardLimitOption = {
    "card-limit", "CARD|BYTES", "",
    "imitates a smaller card: its memory, shared memory and portable kernels, e.g. rtx5090"};
inline constexpr Option kEmulateFp4Option = {
    "emulate-fp4", "", "false",
    "for checks, slow: software computes the instruction for products of 4-bit codes, so that "
    "another card runs what cards of compute capability 12 run, for --activations auto and "
    "declared"};
inline constexpr Option kRequireNativeOption = {
    "require-native", "", "false",
    "refuses to start where products of 4-bit codes are not made by the card's own instruction (or "
    "by what --emulate-fp4 puts in its place), instead of the weight-only kernels"};
inline constexpr Option kRopeScalingOption = {"rope-scaling", "JSON", "",
                                              "rotary settings in place of config.json's, e.g. "
                                              "{\"rope_type\":\"yarn\",\"factor\":4} for four "
                                              "times the model's own length"};
inline constexpr Option kHfOverridesOption = {
    "hf-overrides", "JSON", "",
    "the same in vLLM's form: {\"text_config\":{\"rope_parameters\":{...}}}; no other key is "
    "taken"};
inline constexpr Option kIsaOption = {"isa", "avx512|avxvnni|avx2|i8mm|neon|scalar", "",
                                      "cpu backend: the fastest usable if not given"};

inline constexpr std::array kModelOptions = {
    kBackendOption,       kActivationsOption,   kInputScalesOption, kKvCacheOption,
    kKvScalesOption,      kStateOption,         kLoadFormatOption,  kDirectIoOption,
    kWeightsOption,       kStreamWeightsOption, kCardLimitOption,   kEmulateFp4Option,
    kRequireNativeOption, kThreadsOption,       kIsaOption,         kRevisionOption,
    kRopeScalingOption,   kHfOverridesOption};

/// Reads the options above. Errors: invalid_argument.
Result<ModelRequest> model_request(const Arguments& arguments, std::filesystem::path folder);

/// True if --load-format asks for random weights instead of those of files.
bool wants_random_weights(const Arguments& arguments);

/// The activation mode in option `name`. Errors: invalid_argument.
Result<Activations> parse_activations(const Arguments& arguments, std::string_view name);

/// The kind of state in option `name`. Errors: invalid_argument.
Result<StateCache> parse_state(const Arguments& arguments, std::string_view name);

/// True for a tensor that a text engine loads: no vision tower, no MTP head.
bool is_text_tensor(std::string_view name);
/// Bytes of these tensors, as stored.
int64_t text_weight_bytes(const Checkpoint& checkpoint);
/// Bytes of the vision tower, as stored.
int64_t vision_bytes(const Checkpoint& checkpoint);

/// Errors: those of the checkpoint, the config, the binding and the backend.
Result<LoadedModel> load_model(const ModelRequest& request);

}  // namespace nibble
