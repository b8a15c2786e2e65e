// The table of plans (tests/golden/cuda_plans.txt): the cards that kernels are chosen for without a
// card, and the lines that each operation adds to it. The test of an operation's choice defines its
// function; selection_test.cc compares the whole.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/architecture.h"
#include "backend/cuda/weights/device_weights.h"
#include "base/concat.h"
#include "model/config/config.h"
#include "model/kv_format.h"
#include "model/weights/synthetic_weights.h"

namespace nibble::cuda {

struct Card {
  std::string_view name;
  Architecture facts;
};

/// Cards that people have. Shared memory and SMs are those of NVIDIA's tables; clusters
/// of sm_90a were asked of an H200.
inline std::vector<Card> cards() {
  const auto card = [](std::string_view name, int major, int minor, int multiprocessors,
                       int shared_kib) {
    return Card{name,
                {.code = {.major = major, .minor = minor},
                 .multiprocessors = multiprocessors,
                 .shared_bytes = shared_kib << 10}};
  };
  std::vector<Card> all = {card("A100", 8, 0, 108, 163),    card("RTX3090", 8, 6, 82, 99),
                           card("RTX4090", 8, 9, 128, 99),  card("H200", 9, 0, 132, 227),
                           card("B200", 10, 0, 148, 227),   card("B300", 10, 3, 148, 227),
                           card("RTX5090", 12, 0, 170, 99), card("GB10", 12, 1, 48, 99)};
  all[3].facts.code.reach = CodeTarget::Reach::exact;
  all[3].facts.clusters = {66, 33, 16};
  return all;
}

/// The card of sm_90a with only the kernels that run from compute capability 8.0 up.
inline Architecture portable_hopper() {
  Architecture card = cards()[3].facts;
  card.kernels = Architecture::Kernels::portable;
  return card;
}

/// The formats of keys and values that kernels other than those for F32 tests read.
inline constexpr KvFormat kPageFormats[] = {KvFormat::bf16, KvFormat::fp8,
                                            KvFormat::turboquant_4bit_nc, KvFormat::nvfp4};

using ChoiceOf = std::function<std::string(int rows, const Architecture& card)>;

/// Lines of one operation: cards with the same choice together, rows with the same choice together.
inline std::string lines_of(std::span<const int> all_rows, const ChoiceOf& choose) {
  std::vector<std::pair<std::string, std::string>> groups;  // cards, their lines
  for (const Card& card : cards()) {
    std::string lines;
    std::string before;
    int begin = 0;
    int end = 0;
    const auto flush = [&] {
      if (!before.empty())
        lines += concat("    ", begin, begin == end ? "" : concat("..", end), ": ", before, "\n");
    };
    for (const int rows : all_rows) {
      std::string text = choose(rows, card.facts);
      if (text != before) {
        flush();
        before = std::move(text);
        begin = rows;
      }
      end = rows;
    }
    flush();
    bool known = false;
    for (auto& [names, other] : groups)
      if (other == lines) {
        names += concat(" ", card.name);
        known = true;
      }
    if (!known) groups.emplace_back(card.name, lines);
  }
  std::string text;
  for (const auto& [names, lines] : groups) text += concat("  ", names, "\n", lines);
  return text;
}

inline constexpr int kGeneratedRows[] = {1, 2, 4, 8, 9, 16, 17, 24, 32, 33, 48, 64};
inline constexpr int kFewRows[] = {1, 9,
                                   64};  // of operations whose plans change with the rows little
inline constexpr int kPromptRows[] = {1, 512};

/// The products of a model with weights stored as `layout` says, experts among them.
std::string product_lines(const std::string& name, WeightLayout layout);
/// Attention of a model with pages in one format: generated rows, one of each sequence and four of
/// each, and prompts.
std::string attention_lines(const std::string& name, const ModelConfig& config, KvFormat kv);
/// The delta net of a model with states in one format.
std::string delta_net_lines(const std::string& name, const ModelConfig& config, StateFormat state);
std::string route_lines(const std::string& name, const ModelConfig& config);
/// Every kernel of the prompt GEMM, for a matrix of 4,096 rows and one of experts.
std::string prompt_gemm_lines();

}  // namespace nibble::cuda
