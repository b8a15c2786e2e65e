// Places one linear at a time.
#include "model/weights/draft_places.h"

#include "model/weights/fused_linears.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

void place(LinearSource& linear, WeightFormat format) {
  if (linear.present() && linear.scheme.weights == WeightFormat::plain)
    linear = stored_linear(linear.module, linear.rows, linear.cols, format);
}

void place_mlp(MlpSources& mlp, WeightFormat format) {
  for (LinearSource* part : {&mlp.gate, &mlp.up, &mlp.down}) place(*part, format);
}

/// Rows of `head`; those of codes keep the scales that all rows share.
LinearSource rows_of(const LinearSource& head, int64_t rows, WeightFormat format) {
  const WeightFormat stored = head.scheme.weights;
  if (stored == WeightFormat::plain) return stored_linear(kDraftHead, rows, head.cols, format);
  const LinearSource named = stored_linear(kDraftHead, rows, head.cols, stored);
  LinearSource own = head;
  own.module = named.module;
  own.values = named.values;
  own.rows = rows;
  own.row_begin = 0;
  if (stored != WeightFormat::fp8_tensor) own.scales = named.scales;
  return own;
}

}  // namespace

MtpSources draft_places(MtpSources mtp, const LinearSource& head, const ModelConfig& config) {
  const WeightFormat format = config.draft_format;
  if (format != WeightFormat::plain) {
    AttentionSources& a = mtp.layer.attention;
    for (LinearSource* linear : {&mtp.joined, &a.q, &a.k, &a.v, &a.o}) place(*linear, format);
    place_mlp(mtp.layer.dense_mlp, format);
    place_mlp(mtp.layer.moe.shared, format);
    for (MlpSources& expert : mtp.layer.moe.experts) place_mlp(expert, format);
  }
  const bool narrower = head.scheme.weights == WeightFormat::plain && format != WeightFormat::plain;
  if (!config.draft_tokens.empty() || narrower)
    mtp.head = rows_of(head, config.draft_head_rows(), format);
  return mtp;
}

bool rounds_some(const MtpSources& mtp, const LinearSource& head, const MtpSources& placed) {
  if (placed.head.present() && placed.head.scheme.weights != head.scheme.weights) return true;
  const auto before = fused_linears(mtp), after = fused_linears(placed);
  for (size_t group = 0; group < before.size(); ++group)
    for (size_t i = 0; i < before[group].size(); ++i)
      if (before[group][i]->scheme.weights != after[group][i]->scheme.weights) return true;
  return false;
}

Result<void> check_draft_places(const MtpSources& placed, const LinearSource& head) {
  const auto check_columns = [](const LinearSource& linear) -> Result<void> {
    if (linear.scheme.weights != WeightFormat::nvfp4 || linear.cols % kNvfp4Group == 0) return {};
    return make_error(ErrorCode::unsupported,
                      {.what = concat("--draft-quantization nvfp4: ", linear.module),
                       .expected = "columns in groups of 16",
                       .found = concat(linear.cols, " columns"),
                       .advice = "use --draft-quantization fp8 or none"});
  };
  for (const FusedLinears& group : fused_linears(placed))
    for (const LinearSource* linear : group) TRY(check_columns(*linear));
  if (!placed.head.present()) return {};
  TRY(check_columns(placed.head));
  if (head.scheme.weights != WeightFormat::fp8_block) return {};
  return make_error(ErrorCode::unsupported, {.what = "--speculative-token-map",
                                             .expected = "a head whose rows stand alone",
                                             .found = "one in FP8 blocks of 128 x 128",
                                             .advice = "leave the option out"});
}

}  // namespace nibble
