// The single checks of verify.h. Each looks at one thing and appends what it finds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/weights/weights.h"
#include "quantize/report/content_hashes.h"
#include "quantize/verify/inspect_modules.h"
#include "quantize/verify/verify.h"
#include "quantize/verify/verify_values.h"

namespace nibble {

struct VerifySubject {
  const Checkpoint& checkpoint;
  const QuantConfig& declared;
  const std::vector<StoredModule>& modules;
  /// Facts of every tensor that was scanned.
  const std::map<const TensorEntry*, ValueFacts>& facts;
};

using Findings = std::vector<Finding>;

/// The hashes beside a checkpoint, if there are any. A report that names a file of hashes which is
/// not there, or cannot be read, is a finding.
struct KnownHashes {
  VerifyReport::Hashed state = VerifyReport::Hashed::none;
  ContentHashes hashes = {};
};
KnownHashes find_hashes(const std::filesystem::path& folder, Findings& findings);
/// Every tensor of the checkpoint (its hash is in `found`) and every other file against `known`.
void check_hashes(const Checkpoint& checkpoint, const ContentHashes& known, const Hashes& found,
                  Findings& findings);

/// NaN and infinity, all-zero matrices, dead experts.
void check_values(const VerifySubject& subject, Findings& findings);
/// Block scales finite and not negative; global, input, FP8 and KV scales finite and positive;
/// decoded magnitudes plausible (an inverted global scale is not). Errors: io.
Result<void> check_scales(const VerifySubject& subject, Findings& findings);
/// One global scale, and one input scale, per group that engines fuse. Errors: io.
Result<void> check_fused_groups(const VerifySubject& subject, const Weights& weights,
                                Findings& findings);
/// Every quantized module is declared with its number of bits, every declared linear is quantized,
/// and the ignore list names modules that exist.
void check_declaration(const VerifySubject& subject, Findings& findings);
/// Tensors that no known part of the model owns; MTP and vision weights that the config promises.
void check_key_set(const VerifySubject& subject, const Weights& weights, Findings& findings);
/// A head that config.json ties to the embedding and that has other values of its own. Errors: io.
Result<void> check_tied_head(const Checkpoint& checkpoint, const ModelConfig& config,
                             const Weights& weights, Findings& findings);
/// Tokenizer, template and generation config beside the weights.
void check_companions(const Checkpoint& checkpoint, Findings& findings);
/// Decodes blocks whose values are known, in both directions of the global scale.
void check_decoder(Findings& findings);

}  // namespace nibble
