// QuantConfig: what a checkpoint's config.json (or ModelOpt's hf_quant_config.json) declares about
// its quantized modules. The weight format is read from the tensors themselves; this says what
// precision the activations have, and lets a contradiction be found.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/module_pattern.h"
#include "tensor/quant_scheme.h"

namespace nibble {

struct DeclaredScheme {
  int weight_bits = 16;        // 4: NVFP4, 8: FP8
  bool scale_of_rows = false;  // FP8 with a scale for each row
  ActivationFormat activations = ActivationFormat::high;
  std::string where;  // for messages: "quantization_config.config_groups.group_0"
};

class QuantConfig {
 public:
  /// A checkpoint without any declaration gives an empty config. Errors: unsupported for a method,
  /// algorithm, strategy or pattern that is not known; corrupt for a malformed one.
  static Result<QuantConfig> read(const Checkpoint& checkpoint);
  /// The same from JSON. `config` is config.json; `modelopt` is hf_quant_config.json or null.
  static Result<QuantConfig> parse(const Json& config, const Json* modelopt);

  /// No quantization is declared anywhere.
  bool empty() const { return rules_.empty(); }
  /// The scheme that is declared for a linear. nullptr: it stays unquantized. `module` as the
  /// checkpoint spells it; names written with the other prefix of the text model match too.
  /// Experts of a layer share their answer, kept from the first, unless a pattern tells them apart:
  /// a 35B file has 31,000 of them, and regular expressions are slow. Any thread.
  const DeclaredScheme* find(std::string_view module) const;
  /// The scheme that vLLM finds. It knows the module as `name` and matches patterns against that
  /// alone; it translates full names from the file's. "Linear" does not mean the head there.
  const DeclaredScheme* find_in_vllm(std::string_view module, std::string_view name) const;

 private:
  using Names = std::vector<std::string>;
  /// Index of the scheme of a module that has these names, or kNone. Patterns are matched against
  /// `spelled`, full names against `names`.
  size_t match(const Names& names, const Names& spelled) const;
  static constexpr size_t kNone = ~size_t{0};
  bool experts_alike() const;
  /// Answers by module name, the expert's number left out. Shared by copies of the config.
  struct Answers;
  std::shared_ptr<Answers> answers_;

  struct Rule {
    ModulePattern pattern;
    size_t scheme;
  };
  friend class QuantConfigParser;
  std::vector<DeclaredScheme> schemes_;
  std::vector<Rule> rules_;
  std::vector<ModulePattern> ignored_;
};

}  // namespace nibble
